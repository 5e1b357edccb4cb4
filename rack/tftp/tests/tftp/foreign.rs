//! The server against other projects' clients: curl, atftp and tftp-hpa.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use basalt_tftp::Outcome;
use basalt_tftp::packet::ErrorCode;
use basalt_tftp::server::Event;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::{PATIENCE, Running, large};

/// Runs another project's client. Fails with the package to install if it is missing.
async fn run(program: &str, package: &str, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => panic!("cannot run {program}: {error}; install the Debian package {package}"),
        Err(_) => panic!("{program} {arguments:?} did not end within {PATIENCE:?}"),
    }
}

async fn curl(url: &str, file: &Path, more: &[&str]) -> std::process::Output {
    let file = file.to_str().unwrap();
    let arguments = [&["--silent", "--show-error", "--max-time", "15", "--output", file, url], more].concat();
    run("curl", "curl", &arguments).await
}

async fn atftp(server: SocketAddr, remote: &str, file: &Path, options: &[&str]) -> std::process::Output {
    let (file, port, host) = (file.to_str().unwrap(), server.port().to_string(), server.ip().to_string());
    let mut arguments = vec!["--get", "--remote-file", remote, "--local-file", file];
    for option in options {
        arguments.extend(["--option", option]);
    }
    arguments.extend([host.as_str(), port.as_str()]);
    run("atftp", "atftp", &arguments).await
}

/// tftp-hpa: its interactive commands, in a folder.
async fn hpa(server: SocketAddr, folder: &Path, commands: &[&str]) -> std::process::Output {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/lab/peer");
    let root = run(bring.to_str().unwrap(), "tftp-hpa", &["tftp-hpa"]).await;
    let program = Path::new(String::from_utf8(root.stdout).unwrap().trim_end()).join("usr/bin/tftp");
    let mut command = Command::new(program);
    command.args(["-4", &server.ip().to_string(), &server.port().to_string()]).current_dir(folder);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let said = commands.join("\n") + "\nquit\n";
    client.stdin.take().unwrap().write_all(said.as_bytes()).await.unwrap();
    timeout(PATIENCE, client.wait_with_output()).await.expect("it ends").unwrap()
}

#[tokio::test]
async fn serves_tftp_hpa_as_octets_and_as_text_and_takes_nothing_from_it() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let get = ["mode octet", "get boot/large.img large", "mode netascii", "get text text"];
    let output = hpa(server.address(), folder.path(), &get).await;
    assert!(std::fs::read(folder.path().join("large")).unwrap() == large(), "{output:?}");
    assert_eq!(std::fs::read(folder.path().join("text")).unwrap(), b"one\ntwo\n", "{output:?}");
    for _ in 0..2 {
        assert_eq!(server.outcome().await, Outcome::Completed);
    }
    let refused = [
        ("get none", ErrorCode::FileNotFound),
        ("get ../shell.rs", ErrorCode::AccessViolation),
        ("put text", ErrorCode::AccessViolation),
    ];
    for (command, expected) in refused {
        let output = hpa(server.address(), folder.path(), &[command]).await;
        assert!(String::from_utf8_lossy(&output.stdout).contains("Error code"), "{command}: {output:?}");
        let event = server.event().await;
        assert!(matches!(event, Event::Refused { code, .. } if code == expected), "{command}: {event:?}");
    }
    server.stop().await;
}

/// 530,000 bytes in blocks of eight are 66,251 blocks.
#[tokio::test]
async fn block_numbers_roll_over_as_curl_and_atftp_take_it() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let expected = &large()[..530_000];
    let url = format!("tftp://{}/boot/many.img", server.address());
    let output = curl(&url, &file, &["--tftp-blksize", "8"]).await;
    assert!(output.status.success() && std::fs::read(&file).unwrap() == expected, "{output:?}");
    assert_eq!(server.outcome().await, Outcome::Completed);
    let output = atftp(server.address(), "boot/many.img", &file, &["blksize 8", "windowsize 32"]).await;
    assert!(output.status.success() && std::fs::read(&file).unwrap() == expected, "{output:?}");
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.stop().await;
}

#[tokio::test]
async fn serves_curl() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    for (name, more) in [("boot/large.img", &[][..]), ("/boot/large.img", &["--tftp-blksize", "1468"])] {
        let output = curl(&format!("tftp://{}/{name}", server.address()), &file, more).await;
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read(&file).unwrap(), large());
        assert_eq!(server.outcome().await, Outcome::Completed);
    }
    let output = curl(&format!("tftp://{}/none", server.address()), &file, &[]).await;
    assert_eq!(output.status.code(), Some(68), "curl's code for file not found: {output:?}");
    assert!(matches!(server.event().await, Event::Refused { code: ErrorCode::FileNotFound, .. }));
    assert_eq!(server.counters.bytes.load(Ordering::Relaxed), 6_000_000);
    server.stop().await;
}

#[tokio::test]
async fn serves_atftp_with_every_option() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        &[][..],
        &["blksize 1428"],
        &["blksize 1428", "windowsize 16"],
        &["blksize 65464", "windowsize 64", "tsize enable", "timeout 2"],
    ];
    for (number, options) in cases.into_iter().enumerate() {
        let file = folder.path().join(number.to_string());
        let output = atftp(server.address(), "boot/large.img", &file, options).await;
        assert!(output.status.success(), "{options:?}: {output:?}");
        assert!(std::fs::read(&file).unwrap() == large(), "{options:?}");
        assert_eq!(server.outcome().await, Outcome::Completed, "{options:?}");
    }
    server.stop().await;
}
