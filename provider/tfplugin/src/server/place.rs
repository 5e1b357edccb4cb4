//! The address for Terraform's connections: a unix socket, or a local TCP port if a socket cannot be shared.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use tokio::net::{TcpListener, UnixListener};

use super::ServeError;
use super::handshake::Handshake;
use super::listener::Listener;
use super::socket::PluginSocket;

/// A bound address. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) enum Place {
    Unix(PluginSocket),
    Tcp { listener: std::net::TcpListener, address: SocketAddr },
}

impl Place {
    /// Binds a socket or a port. Every user of this machine can connect to a port, and only TLS keeps them out. So a port is not
    /// bound without a client certificate.
    pub(crate) fn bind(handshake: &Handshake, tcp: bool) -> Result<Self, ServeError> {
        if !tcp {
            return Ok(Self::Unix(PluginSocket::bind(handshake.socket_dir.as_deref())?));
        }
        if handshake.client_cert.is_none() {
            return Err(ServeError::TcpWithoutTls);
        }
        let ports = handshake.ports.clone();
        let (listener, address) = bind_one_of(ports.clone()).map_err(|source| ServeError::Ports {
            first: *ports.start(),
            last: *ports.end(),
            source,
        })?;
        Ok(Self::Tcp { listener, address })
    }

    /// The listener of this address. Needs a Tokio runtime.
    pub(crate) fn listener(&self) -> io::Result<Listener> {
        Ok(match self {
            Self::Unix(socket) => Listener::Unix(UnixListener::from_std(socket.listener()?)?),
            Self::Tcp { listener, .. } => Listener::Tcp(TcpListener::from_std(listener.try_clone()?)?),
        })
    }
}

/// The form in the handshake line: network and address.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(socket) => write!(f, "unix|{}", socket.path().display()),
            Self::Tcp { address, .. } => write!(f, "tcp|{address}"),
        }
    }
}

/// The first free port of the range. Several providers start at once with the same range.
fn bind_one_of(mut ports: RangeInclusive<u16>) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let bind = |port| {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    loop {
        match ports.next().map(bind) {
            Some(Ok(bound)) => return Ok(bound),
            Some(Err(error)) if ports.is_empty() => return Err(error),
            Some(Err(_)) => {}
            None => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(more: &[(&str, &str)]) -> Handshake {
        Handshake::told(more)
    }

    #[test]
    fn a_port_is_one_of_those_that_terraform_names_and_that_are_free() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let first = taken.local_addr().expect("an address").port();
        let (from, to) = (first.to_string(), first.saturating_add(100).to_string());
        let ports = [("PLUGIN_CLIENT_CERT", "pem"), ("PLUGIN_MIN_PORT", &from), ("PLUGIN_MAX_PORT", &to)];
        let place = Place::bind(&told(&ports), true).expect("a place").to_string();
        let port = place.strip_prefix("tcp|127.0.0.1:").and_then(|port| port.parse::<u16>().ok());
        let port = port.unwrap_or_else(|| panic!("{place}"));
        assert!(port > first && port <= first.saturating_add(100), "{place}");

        let none = [("PLUGIN_CLIENT_CERT", "pem"), ("PLUGIN_MIN_PORT", &from), ("PLUGIN_MAX_PORT", &from)];
        let error = Place::bind(&told(&none), true).expect_err("it is taken").to_string();
        assert!(error.starts_with(&format!("no port from {from} to {from} of 127.0.0.1 is free")), "{error}");
    }

    #[test]
    fn no_port_is_opened_to_whoever_is_on_this_machine() {
        let error = Place::bind(&told(&[]), true).expect_err("no certificate").to_string();
        assert!(error.contains("PLUGIN_CLIENT_CERT"), "{error}");
    }
}
