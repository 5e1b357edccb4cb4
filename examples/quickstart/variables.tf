variable "image_dir" {
  description = "Where `basalt image build` put its images: a folder with ephemeral/image.json and debian/image.json."
  type        = string
}

variable "ssh_key" {
  description = "SSH public key that may log in to the installed systems."
  type        = string
}

variable "bmc_password" {
  description = "Password of the account `admin` on both BMCs."
  type        = string
  sensitive   = true
  ephemeral   = true
}

variable "kernel_options" {
  description = "Kernel parameters for everything that boots here. The lab's machines have a serial console."
  type        = string
  default     = "console=ttyS0"
}
