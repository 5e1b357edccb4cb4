//! A server on loopback, and the client core with a socket.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_tftp::client::{ClientAction, ClientRequest, Failure, Fetched};
use basalt_tftp::server::{self, Counters, Event, FileSource, OpenError, Settings};
use basalt_tftp::{Client, Limits, Outcome};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Longer than any test takes that does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Files(pub(crate) HashMap<&'static str, Bytes>);

impl FileSource for Files {
    async fn open(&self, path: &str, _client: SocketAddr) -> Result<Bytes, OpenError> {
        if path == "never" {
            std::future::pending::<()>().await;
        }
        if path == "broken" {
            return Err(OpenError::Unavailable("the disk is gone".to_owned()));
        }
        self.0.get(path).cloned().ok_or(OpenError::NotFound)
    }
}

pub(crate) fn large() -> Bytes {
    (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub(crate) struct Running {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) counters: Arc<Counters>,
    events: mpsc::UnboundedReceiver<Event>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Running {
    pub(crate) async fn start(hosts: &[&str], limits: Limits) -> Self {
        let mut sockets = Vec::new();
        for host in hosts {
            sockets.push(UdpSocket::bind((*host, 0)).await.expect("a loopback port"));
        }
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let counters = Arc::new(Counters::default());
        let open_timeout = Duration::from_millis(300);
        let settings = Settings { limits, counters: counters.clone(), open_timeout, ..Settings::default() };
        let (stop, stopped) = oneshot::channel();
        let (sender, events) = mpsc::unbounded_channel();
        let files = Files(HashMap::from([
            ("small.efi", Bytes::from_static(b"small")),
            ("boot/large.img", large()),
            ("boot/many.img", large().slice(..530_000)),
            ("text", Bytes::from_static(b"one\ntwo\n")),
            ("empty", Bytes::new()),
        ]));
        let observe = move |event| {
            let _ = sender.send(event);
        };
        let stopped = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(server::serve(sockets, files, settings, observe, stopped));
        Self { addresses, counters, events, stop, task }
    }

    pub(crate) async fn one() -> Self {
        Self::start(&["127.0.0.1"], Limits::default()).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("a running server")
    }

    pub(crate) async fn outcome(&mut self) -> Outcome {
        match self.event().await {
            Event::Finished { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("a running server");
        timeout(PATIENCE, self.task).await.expect("stops in time").unwrap().unwrap();
    }
}

/// Fetches with the client core.
pub(crate) async fn fetch(request: ClientRequest) -> Result<Fetched, Failure> {
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let socket = UdpSocket::bind((local, 0)).await.unwrap();
    let (mut client, mut actions) = Client::start(request, Instant::now());
    let mut buffer = [0; 2048];
    loop {
        for action in actions {
            match action {
                ClientAction::Send { to, bytes } => drop(socket.send_to(&bytes, to).await.unwrap()),
                ClientAction::Done(result) => return result,
            }
        }
        let deadline = tokio::time::Instant::from_std(client.deadline());
        actions = tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let (len, from) = received.unwrap();
                client.on_packet(Instant::now(), from, &buffer[..len])
            }
            () = tokio::time::sleep_until(deadline) => client.on_timer(Instant::now()),
        };
    }
}
