terraform {
  required_version = ">= 1.11"
  required_providers {
    basalt = {
      source = "basalt-metal/basalt"
    }
  }
}

provider "basalt" {
  default_labels = {
    environment = "production"
  }
}
