//! Uploading and downloading blobs.

use crate::support::{Answer, Lab, admin_token, lab};
use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::RECEIVED_HEADER;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn hash(bytes: &[u8]) -> String {
    hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
}

async fn part(lab: &Lab, path: &str, range: &str, bytes: &[u8]) -> Answer {
    lab.api.send("PUT", path, &[("Content-Range", range)], bytes.to_vec()).await
}

#[tokio::test]
async fn an_upload_goes_on_where_it_stopped() {
    let lab = lab().await;
    let bytes: Vec<u8> = (0..1000u32).flat_map(u32::to_be_bytes).collect();
    let path = format!("/api/v1/blobs/{}", hash(&bytes));
    let (first, second) = bytes.split_at(1500);
    assert_eq!(
        part(&lab, &path, "bytes 0-1499/4000", first).await.json(),
        json!({"received": 1500, "complete": false})
    );
    let head = lab.api.send("HEAD", &path, &[], "").await;
    assert_eq!((head.status.as_u16(), &head.headers[RECEIVED_HEADER]), (202, &"1500".parse().unwrap()));
    assert_eq!(lab.api.get(&path).await.status, 404, "a part is no blob");
    let gap = part(&lab, &path, "bytes 2000-3999/4000", second).await;
    assert_eq!(gap.problem().1, "conflict");
    let whole = part(&lab, &path, "bytes 1500-3999/4000", second).await;
    assert_eq!((whole.status.as_u16(), whole.json()), (201, json!({"received": 4000, "complete": true})));
    let head = lab.api.send("HEAD", &path, &[], "").await;
    assert_eq!((head.status.as_u16(), &head.headers["content-length"]), (200, &"4000".parse().unwrap()));
    assert_eq!(lab.api.get(&path).await.body, bytes);
    let tail = lab.api.send("GET", &path, &[("Range", "bytes=3990-")], "").await;
    assert_eq!((tail.status.as_u16(), tail.body.as_ref()), (206, &bytes[3990..]));
    assert_eq!(tail.headers["content-range"], "bytes 3990-3999/4000");
    let again = lab.api.send("PUT", &path, &[], bytes).await;
    assert_eq!(again.json(), json!({"received": 4000, "complete": true}));
}

#[tokio::test]
async fn bytes_with_another_hash_are_thrown_away() {
    let lab = lab().await;
    let path = format!("/api/v1/blobs/{}", hash(b"these"));
    let refused = lab.api.send("PUT", &path, &[], "those").await;
    assert_eq!(refused.problem().0, 422);
    assert_eq!(lab.api.send("HEAD", &path, &[], "").await.status, 404, "nothing of them is kept");
    let more = part(&lab, &path, "bytes 0-1/2", b"these").await;
    assert_eq!(more.problem().0, 422);
    assert_eq!(lab.api.send("PUT", &path, &[], "these").await.status, 201);
    for (path, range) in
        [("/api/v1/blobs/xyz", "bytes 0-1/2"), (path.as_str(), "bytes 2-1/4"), (path.as_str(), "x")]
    {
        let answer = part(&lab, path, range, b"ab").await;
        assert!(answer.status == 422 || answer.status == 200, "{path} {range}: {answer:?}");
    }
}

/// The first connections through [`wire`] carry this much towards the region, then break.
const BREAKS_AFTER: u64 = 3 << 20;

/// What went through [`wire`] towards the region, before it broke and since.
#[derive(Debug, Default)]
struct Carried {
    before: AtomicU64,
    since: AtomicU64,
}

/// A way to the region that breaks once.
async fn wire(region: SocketAddr) -> (SocketAddr, Arc<Carried>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, carried) = (listener.local_addr().unwrap(), Arc::new(Carried::default()));
    let counts = Arc::clone(&carried);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let region = TcpStream::connect(region).await.unwrap();
            tokio::spawn(carry(client, region, Arc::clone(&counts)));
        }
    });
    (address, carried)
}

/// Carries bytes both ways, until the wire breaks or one side is done.
async fn carry(mut client: TcpStream, mut region: TcpStream, carried: Arc<Carried>) {
    let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    loop {
        let sent = tokio::select! {
            n = client.read(&mut up) => match n {
                Ok(n) if n > 0 => {
                    let n64 = u64::try_from(n).unwrap();
                    if carried.before.load(Ordering::SeqCst) >= BREAKS_AFTER {
                        carried.since.fetch_add(n64, Ordering::SeqCst);
                    } else if carried.before.fetch_add(n64, Ordering::SeqCst) + n64 >= BREAKS_AFTER {
                        return;
                    }
                    region.write_all(&up[..n]).await
                }
                _ => return,
            },
            n = region.read(&mut down) => match n {
                Ok(n) if n > 0 => client.write_all(&down[..n]).await,
                _ => return,
            },
        };
        if sent.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn after_a_broken_connection_a_client_sends_only_what_is_not_there() {
    let lab = lab().await;
    let (address, carried) = wire(lab.region.address()).await;
    let client = Client::new(&ClientConfig {
        endpoints: vec![format!("http://{address}")],
        token: Some(admin_token(lab.dir.path())),
        ..ClientConfig::default()
    })
    .unwrap();
    let bytes: Vec<u8> = (0..1_250_000_u32).flat_map(u32::to_be_bytes).collect();
    let total = u64::try_from(bytes.len()).unwrap();
    let file = lab.dir.path().join("image");
    std::fs::write(&file, &bytes).unwrap();
    let mut seen = Vec::new();
    let sha256 = hash(&bytes).parse().unwrap();
    let state = client.put_blob(&sha256, &file, |progress| seen.push(progress.received)).await.unwrap();
    assert!(state.complete);
    let [0, kept, end] = seen[..] else { panic!("it was taken up once: {seen:?}") };
    assert_eq!(end, total);
    assert!(kept > 2 << 20, "what came before the wire broke is kept: {kept}");
    let since = carried.since.load(Ordering::SeqCst);
    let headers = 4096;
    assert!(
        (total - kept..total - kept + headers).contains(&since),
        "{since} bytes were sent after {kept} of {total} were there"
    );
    assert_eq!(lab.api.get(&format!("/api/v1/blobs/{sha256}")).await.body, bytes);
}
