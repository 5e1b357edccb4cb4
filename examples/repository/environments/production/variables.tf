variable "bmc_password" {
  description = "Password of the account `admin` on the BMCs."
  type        = string
  ephemeral   = true
}
