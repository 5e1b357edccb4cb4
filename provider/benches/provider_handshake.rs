//! Measures the time from the provider's start to its handshake line, TLS included.
//!
//! Terraform starts three to five provider processes per command, one after another. Prints one line of JSON:
//! `cargo bench -p terraform-provider-basalt --bench provider_handshake`.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P521_SHA512};

/// The variable that Terraform sets for plugins that it starts.
const COOKIE: &str = "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2";
const RUNS: usize = 60;
/// Target, in milliseconds.
const TARGET: f64 = 3.0;

fn main() -> Result<(), Box<dyn Error>> {
    let certificate = like_terraform()?;
    let mut times = (0..RUNS).map(|_| handshake(&certificate)).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    let median = times.get(RUNS / 2).copied().unwrap_or_default().as_secs_f64() * 1000.0;
    let line = serde_json::json!({
        "bench": "provider_handshake",
        "basalt": (median * 100.0).round() / 100.0,
        "peer": "target",
        "peer_value": TARGET,
        "ratio": (TARGET / median * 100.0).round() / 100.0,
        "unit": "ms",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

/// A certificate like Terraform's: self-signed, ECDSA P-521, a CA.
fn like_terraform() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512)?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params.self_signed(&key)?.pem())
}

fn handshake(certificate: &str) -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    let mut provider = Command::new(env!("CARGO_BIN_EXE_terraform-provider-basalt"))
        .env("TF_PLUGIN_MAGIC_COOKIE", COOKIE)
        .env("PLUGIN_PROTOCOL_VERSIONS", "5,6")
        .env("PLUGIN_CLIENT_CERT", certificate)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    let read =
        provider.stdout.take().ok_or("no stdout").map(|stdout| BufReader::new(stdout).read_line(&mut line));
    let took = started.elapsed();
    provider.kill()?;
    provider.wait()?;
    read??;
    // The process was killed, so it could not remove its socket.
    let socket = line.split('|').nth(3).ok_or_else(|| format!("no handshake line: {line:?}"))?;
    std::fs::remove_file(socket)?;
    if let Some(dir) = std::path::Path::new(socket).parent() {
        std::fs::remove_dir(dir)?;
    }
    Ok(took)
}
