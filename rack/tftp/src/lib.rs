//! Sans-IO TFTP server and client cores.
