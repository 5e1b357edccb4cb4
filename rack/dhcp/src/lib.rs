//! Sans-IO DHCPv4 server and client cores behind a hardened ingress.
