terraform {
  required_version = ">= 1.11"
  required_providers {
    basalt = {
      source = "basalt-metal/basalt"
    }
  }
}

# Endpoint and token come from BASALT_ENDPOINT and BASALT_TOKEN (or BASALT_TOKEN_FILE).
provider "basalt" {}
