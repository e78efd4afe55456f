# An image of Google Compute Engine. Modules are compiled without a GPU, so none is attached.
variable "google_project" {
  type    = string
  default = ""
}

variable "google_zone" {
  type    = string
  default = ""
}

variable "google_source_image" {
  type        = string
  default     = ""
  description = "Image to begin with: the system that README.md names, plain or hardened by you."
}

variable "google_source_project" {
  type        = string
  default     = ""
  description = "Project that this image belongs to."
}

variable "google_machine_type" {
  type    = string
  default = "n2-standard-8"
}

source "googlecompute" "node" {
  project_id                = var.google_project
  zone                      = var.google_zone
  source_image              = var.google_source_image
  source_image_project_id   = [var.google_source_project]
  machine_type              = var.google_machine_type
  disk_size                 = var.disk_gb
  ssh_username              = var.ssh_username
  ssh_clear_authorized_keys = true
  image_name                = "${var.name}-${local.stamp}"
  image_family              = var.name
  image_description         = var.lock
}
