# An Amazon machine image. Modules are compiled without a GPU, so no GPU instance is needed.
variable "amazon_region" {
  type    = string
  default = ""
}

variable "amazon_source_ami" {
  type        = string
  default     = ""
  description = "AMI to begin with: the system that README.md names, plain or hardened by you."
}

variable "amazon_root_device" {
  type        = string
  default     = "/dev/xvda"
  description = "Root device of that AMI: /dev/xvda on Debian and Amazon Linux, /dev/sda1 on Ubuntu and RHEL."
}

variable "amazon_instance_type" {
  type    = string
  default = "c6i.2xlarge"
}

source "amazon-ebs" "node" {
  region                    = var.amazon_region
  instance_type             = var.amazon_instance_type
  source_ami                = var.amazon_source_ami
  ssh_username              = var.ssh_username
  ssh_clear_authorized_keys = true
  ami_name                  = "${var.name}-${local.stamp}"
  tags                      = { provision_lock = var.lock }

  launch_block_device_mappings {
    device_name           = var.amazon_root_device
    volume_size           = var.disk_gb
    volume_type           = "gp3"
    iops                  = 3000
    throughput            = 125
    delete_on_termination = true
  }
}
