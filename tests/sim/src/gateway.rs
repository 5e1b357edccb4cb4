//! A web service in the lab that switches simulated machines, for racks with the driver `webhook`.
//!
//! | request | does |
//! | --- | --- |
//! | `GET /NAME` | `{"power": "on"}` or `{"power": "off"}` |
//! | `POST /NAME/on`, `/NAME/off`, `/NAME/shutdown` | switches on, cuts the power, presses the button |
//!
//! Without its bearer token the answer is 401, and no machine is switched.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use basalt_bmc::{ChassisBackend, PowerState, PowerVerb};
use basalt_lab::Lab;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cable;
use crate::chassis::{Backend, Chassis};
use crate::machine::SimMachine;

/// Time limit for its start, and for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest number of header lines of a request.
const HEADERS: usize = 50;

/// The service. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    heard: Arc<Mutex<Vec<String>>>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Serves HTTP at an address of the lab.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn start(lab: &Lab, address: SocketAddr, token: &str, machines: &[&SimMachine]) -> io::Result<Self> {
        let service = Service {
            machines: machines.iter().map(|machine| machine.chassis()).collect(),
            authorization: format!("authorization: Bearer {token}"),
            heard: Arc::default(),
        };
        let (heard, namespace) = (Arc::clone(&service.heard), lab.namespace().to_owned());
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let prepare = || {
                cable::enter(&namespace)?;
                tokio::runtime::Builder::new_current_thread().enable_all().build()
            };
            let runtime = match prepare() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async move {
                let listener = match TcpListener::bind(address).await {
                    Ok(listener) => listener,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let _abandoned = ready.send(Ok(()));
                tokio::select! {
                    () = service.serve(listener) => {}
                    // The handle may have been lost, so an error also means "stop".
                    _ = stopped => {}
                }
            });
        });
        started.recv_timeout(PATIENCE).map_err(io::Error::other)??;
        Ok(Self { heard, stop: Some(stop), server: Some(server) })
    }

    /// The authorised requests so far, like `POST /sim1/on`.
    #[must_use]
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            let _panicked = server.join();
        }
    }
}

struct Service {
    machines: Vec<Arc<Chassis>>,
    /// The header line that a request must have.
    authorization: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Service {
    async fn serve(&self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that disconnects or sends nothing gets no answer.
            let _missed = timeout(PATIENCE, self.answer(stream)).await;
        }
    }

    async fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut request, mut is_known) = (String::new(), false);
        stream.read_line(&mut request).await?;
        for _ in 0..HEADERS {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            match header.trim_end() {
                "" => break,
                line => is_known |= line == self.authorization,
            }
        }
        let request = request.trim_end().trim_end_matches(" HTTP/1.1");
        let (status, body) = if is_known { self.act(request).await } else { ("401 Unauthorized", "") };
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }

    async fn act(&self, request: &str) -> (&'static str, &'static str) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        let (verb, name) = match request.split(['/', ' ']).collect::<Vec<_>>()[..] {
            ["GET", "", name] => (None, name),
            ["POST", "", name, "on"] => (Some(PowerVerb::On), name),
            ["POST", "", name, "off"] => (Some(PowerVerb::Off), name),
            ["POST", "", name, "shutdown"] => (Some(PowerVerb::Soft), name),
            _ => return ("404 Not Found", ""),
        };
        let Some(chassis) = self.machines.iter().find(|it| it.options.name == name) else {
            return ("404 Not Found", "");
        };
        if let Some(verb) = verb
            && Backend(Arc::clone(chassis)).control(verb).await.is_err()
        {
            return ("409 Conflict", "");
        }
        match chassis.state() {
            PowerState::On => ("200 OK", r#"{"power": "on"}"#),
            PowerState::Off => ("200 OK", r#"{"power": "off"}"#),
        }
    }
}
