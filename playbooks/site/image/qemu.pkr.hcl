# A disk for QEMU and what is made of it: bare metal, libvirt, OpenStack, Proxmox.
variable "qemu_source" {
  type        = string
  default     = ""
  description = "Address or path of the cloud image (qcow2) to begin with: the system that README.md names."
}

variable "qemu_checksum" {
  type        = string
  default     = "none"
  description = "Checksum of that image, as in sha512:..."
}

variable "qemu_seed" {
  type        = string
  default     = ""
  description = "Folder with user-data and meta-data of cloud-init (NoCloud) that let ssh_username in by qemu_ssh_key."
}

variable "qemu_ssh_key" {
  type        = string
  default     = ""
  description = "Private key of the build."
}

variable "qemu_accelerator" {
  type    = string
  default = "kvm"
}

source "qemu" "node" {
  iso_url                   = var.qemu_source
  iso_checksum              = var.qemu_checksum
  disk_image                = true
  disk_size                 = "${var.disk_gb}G"
  format                    = "qcow2"
  accelerator               = var.qemu_accelerator
  cpus                      = 4
  memory                    = 8192
  headless                  = true
  cd_files                  = ["${var.qemu_seed}/user-data", "${var.qemu_seed}/meta-data"]
  cd_label                  = "cidata"
  ssh_username              = var.ssh_username
  ssh_private_key_file      = var.qemu_ssh_key
  ssh_clear_authorized_keys = true
  ssh_timeout               = "20m"
  shutdown_command          = "sudo shutdown -P now"
  output_directory          = "image-${local.stamp}"
  vm_name                   = "${var.name}.qcow2"
}
