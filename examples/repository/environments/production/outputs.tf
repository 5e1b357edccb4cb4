output "web" {
  description = "Where the web servers are."
  value       = module.web.addresses
}
