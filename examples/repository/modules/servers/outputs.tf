output "addresses" {
  description = "Where each system is reached."
  value       = { for name, deployment in basalt_deployment.this : name => deployment.status.address }
}
