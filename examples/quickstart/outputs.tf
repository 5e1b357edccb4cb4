output "machines" {
  description = "Where each system runs."
  value = {
    for name, deployment in basalt_deployment.this : name => {
      hostname = deployment.status.hostname
      address  = deployment.status.address
      disk     = deployment.status.disk
    }
  }
}
