output "zone" {
  description = "The zone of machines that stand here."
  value       = basalt_zone.this.name
}

output "pool" {
  description = "The pool of machines that stand here."
  value       = basalt_pool.this.name
}

output "subnet" {
  description = "The network, once it has DHCP."
  value       = basalt_subnet.this.name
  depends_on  = [basalt_ip_range.dynamic, basalt_ip_range.reserved]
}
