# A managed image of Azure. Modules are compiled without a GPU, so no GPU size is needed.
variable "azure_subscription" {
  type    = string
  default = ""
}

variable "azure_location" {
  type    = string
  default = ""
}

variable "azure_resource_group" {
  type        = string
  default     = ""
  description = "Resource group that the image is put into; it must be there."
}

variable "azure_publisher" {
  type        = string
  default     = ""
  description = "Publisher, offer and sku of the image to begin with: the system that README.md names."
}

variable "azure_offer" {
  type    = string
  default = ""
}

variable "azure_sku" {
  type    = string
  default = ""
}

variable "azure_vm_size" {
  type    = string
  default = "Standard_D8s_v5"
}

source "azure-arm" "node" {
  use_azure_cli_auth                = true
  subscription_id                   = var.azure_subscription
  location                          = var.azure_location
  vm_size                           = var.azure_vm_size
  os_type                           = "Linux"
  os_disk_size_gb                   = var.disk_gb
  image_publisher                   = var.azure_publisher
  image_offer                       = var.azure_offer
  image_sku                         = var.azure_sku
  ssh_username                      = var.ssh_username
  managed_image_name                = "${var.name}-${local.stamp}"
  managed_image_resource_group_name = var.azure_resource_group
  azure_tags                        = { provision_lock = var.lock }
}
