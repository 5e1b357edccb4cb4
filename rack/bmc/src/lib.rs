//! IPMI 2.0 (RMCP+) client and server cores and an async transport.
