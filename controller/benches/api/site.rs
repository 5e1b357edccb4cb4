//! A region with its own PostgreSQL, clients for it, and pgbench.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_db::cluster::{Cluster, ClusterOptions};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// The reason why there is no result.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The number of machines of a filled site.
pub(crate) const MACHINES: usize = 10_000;

/// The number of parallel requests, and of pgbench's connections.
pub(crate) const CLIENTS: usize = 8;

/// The length of one measurement.
const SPAN: Duration = Duration::from_secs(5);

/// A region, with the parts that load it. It serves requests, and no driver reconciles objects during the measurement.
pub(crate) struct Site {
    dir: TempDir,
    cluster: Cluster,
    region: Region,
    token: String,
    pub(crate) client: Client,
}

/// A connection that stays open between requests.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authorization: String,
}

impl Site {
    pub(crate) async fn open() -> Result<Self, Failed> {
        // A directory that PostgreSQL's account can enter.
        let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
        open_to_all(dir.path())?;
        let options =
            ClusterOptions { dir: dir.path().join("postgresql"), account: None, settings: Vec::new() };
        let cluster = Cluster::start(options).await?;
        let settings = Settings {
            database_url: Some(cluster.url()),
            listen: ([127, 0, 0, 1], 0).into(),
            ..Settings::new(dir.path().join("region"))
        };
        let region = Box::pin(Region::start(settings)).await?;
        let token = std::fs::read_to_string(dir.path().join("region/admin-token"))?.trim().to_owned();
        let client = Client::new(&ClientConfig {
            endpoints: vec![format!("http://{}", region.address())],
            token: Some(token.clone()),
            manager: Some("bench".to_owned()),
            ..ClientConfig::default()
        })?;
        Ok(Self { dir, cluster, region, token, client })
    }

    pub(crate) async fn close(self) {
        self.region.stop().await;
        self.cluster.stop().await;
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The URL of the database.
    pub(crate) fn url(&self) -> String {
        self.cluster.url()
    }

    /// Declares [`MACHINES`] machines.
    pub(crate) async fn fill(&self) -> Result<(), Failed> {
        for run in 0..2 {
            let documents = documents(run, MACHINES / 2)?;
            self.client.apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
        }
        self.psql("vacuum analyze")?;
        Ok(())
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(self.region.address()).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, authorization: format!("Bearer {}", self.token) })
    }

    /// The requests per second over [`CLIENTS`] connections. `request` returns method, path and body of each.
    pub(crate) async fn rate(
        &self,
        request: impl Fn(usize) -> (&'static str, String, String) + Copy + Send + Sync + 'static,
    ) -> Result<f64, Failed> {
        let begin = Instant::now();
        let mut workers = Vec::new();
        for worker in 0..CLIENTS {
            let mut connection = self.connect().await?;
            workers.push(tokio::spawn(async move {
                let (mut done, mut number) = (0_usize, worker * 7919);
                while begin.elapsed() < SPAN {
                    number = (number * 31 + 17) % MACHINES;
                    let (method, path, body) = request(number);
                    connection.send(method, &path, body).await?;
                    done += 1;
                }
                Ok::<usize, Failed>(done)
            }));
        }
        let mut done = 0;
        for worker in workers {
            done += worker.await??;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    }

    /// The transactions per second of pgbench with as many clients and prepared statements, and their latencies in milliseconds.
    pub(crate) fn pgbench(&self, clients: usize, script: &str) -> Result<(f64, Vec<f64>), Failed> {
        let (file, log) = (self.dir().join("pgbench.sql"), self.dir().join("pgbench_log"));
        std::fs::write(&file, script)?;
        let (clients, seconds) = (clients.to_string(), SPAN.as_secs().to_string());
        let output = Command::new("pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients, "-T", &seconds, "-l"])
            .arg("--log-prefix")
            .arg(&log)
            .arg("-f")
            .arg(&file)
            .arg(self.url())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let Some(rate) = rate.filter(|_| output.status.success()) else {
            return Err(format!("pgbench: {said}{}", String::from_utf8_lossy(&output.stderr)).into());
        };
        let mut latencies = Vec::new();
        for entry in std::fs::read_dir(self.dir())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pgbench_log")) {
                let text = std::fs::read_to_string(&path)?;
                let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
                latencies.extend(micros.map(|micros| micros / 1000.0));
                std::fs::remove_file(&path)?;
            }
        }
        Ok((rate, latencies))
    }

    /// Runs a script and returns psql's output.
    pub(crate) fn psql(&self, script: &str) -> Result<String, Failed> {
        let file = self.dir().join("script.sql");
        std::fs::write(&file, script)?;
        let output = Command::new("psql")
            .args(["-X", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(&file)
            .arg(self.url())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

impl Connection {
    /// The head of the answer, before its body is read.
    pub(crate) async fn open(
        &mut self,
        method: &str,
        path: &str,
        body: String,
    ) -> Result<Response<Incoming>, Failed> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "region")
            .header(header::AUTHORIZATION, &self.authorization)
            .body(Full::new(Bytes::from(body)))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(format!("{method} {path}: {}", response.status()).into()),
        }
    }

    /// The whole body of the answer.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: String) -> Result<Bytes, Failed> {
        Ok(self.open(method, path, body).await?.into_body().collect().await?.to_bytes())
    }
}

/// A zone with `count` machines, as a site would declare them. Each run has its own machines.
pub(crate) fn documents(run: usize, count: usize) -> Result<Vec<Document>, serde_json::Error> {
    let zone = format!("zone-{run}");
    let machines = (run * count..(run + 1) * count).map(|number| {
        let metadata = json!({"name": format!("machine-{number}"), "labels": {"app": "bench"}});
        json!({"kind": "Machine", "metadata": metadata, "spec": machine(number, &zone, "the lowest of its rack")})
    });
    let first = json!({"kind": "Zone", "metadata": {"name": zone}, "spec": {}});
    machines.chain([first]).map(serde_json::from_value).collect()
}

/// The spec of one machine.
pub(crate) fn machine(number: usize, zone: &str, description: &str) -> serde_json::Value {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or_default().to_be_bytes();
    let mac = format!("52:54:{high:02x}:{middle:02x}:{low:02x}:00");
    let bmc = format!("10.{high}.{middle}.{low}");
    json!({"zone": zone, "boot_macs": [mac], "architecture": "amd64", "description": description,
           "bmc": {"driver": "ipmi", "address": bmc, "username": "admin", "password": "a-secret"}})
}

fn open_to_all(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
