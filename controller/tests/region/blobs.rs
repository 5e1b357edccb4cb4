//! Uploads and downloads of blobs.

use crate::support::{Answer, Lab, admin_token, lab, lab_with};
use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::RECEIVED_HEADER;
use basalt_region::blobs::{Blobs, Limits};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) fn hash(bytes: &[u8]) -> String {
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

/// The number of bytes towards the region after which the first connections through [`wire`] break.
const BREAKS_AFTER: u64 = 3 << 20;

/// The numbers of bytes through [`wire`] towards the region, before it broke and since.
#[derive(Debug, Default)]
struct Carried {
    before: AtomicU64,
    since: AtomicU64,
}

/// A proxy to the region that breaks once.
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

/// Copies bytes both ways, until the wire breaks or one side ends.
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

#[tokio::test]
async fn a_blob_larger_than_the_limit_is_refused_and_leaves_nothing() {
    let lab = lab_with(|settings| settings.blob_bytes = 4).await;
    let path = format!("/api/v1/blobs/{}", hash(b"these"));
    let announced = part(&lab, &path, "bytes 0-1/5", b"th").await;
    let unannounced = lab.api.send("PUT", &path, &[], "these").await;
    for refused in [announced, unannounced] {
        let (status, _, errors) = refused.problem();
        assert_eq!(status, 422);
        assert_eq!(errors, [": a blob of 5 bytes is larger than the 4 bytes that this region takes"]);
    }
    assert_eq!(lab.api.send("HEAD", &path, &[], "").await.status, 404);
    assert_eq!(
        lab.api.send("PUT", &format!("/api/v1/blobs/{}", hash(b"four")), &[], "four").await.status,
        201
    );
}

#[tokio::test]
async fn blobs_that_no_image_names_and_parts_that_nobody_ends_are_removed() {
    let lab = lab().await;
    let blobs = |unused, part| {
        let limits = Limits { bytes: 1 << 20, unused, part };
        Blobs::open(lab.dir.path().join("blobs"), lab.region.store().clone(), limits).unwrap()
    };
    let (day, now) = (Duration::from_secs(86_400), Duration::ZERO);
    let path = |bytes: &[u8]| format!("/api/v1/blobs/{}", hash(bytes));
    for bytes in ["named", "unnamed"] {
        assert_eq!(lab.api.send("PUT", &path(bytes.as_bytes()), &[], bytes).await.status, 201);
    }
    assert_eq!(part(&lab, &path(b"a part"), "bytes 0-1/6", b"a ").await.status, 202);
    // A reference counts in capital letters too.
    let files = json!({"root_tarball": {"sha256": hash(b"named").to_uppercase(), "size": 5}});
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files});
    lab.api.declare("/api/v1/images/i", &image.to_string()).await;
    let there = async || {
        let mut there = Vec::new();
        for bytes in [&b"named"[..], b"unnamed", b"a part"] {
            there.push(lab.api.send("HEAD", &path(bytes), &[], "").await.status.as_u16());
        }
        there
    };

    blobs(day, day).collect().await.unwrap();
    assert_eq!(there().await, [200, 200, 202], "their time is not over");
    blobs(now, now).collect().await.unwrap();
    assert_eq!(there().await, [200, 404, 404]);
    assert!(!lab.dir.path().join("blobs").join(&hash(b"unnamed")[..2]).join(hash(b"unnamed")).exists());

    assert_eq!(lab.api.delete("/api/v1/images/i").await.status.as_u16() / 100, 2);
    blobs(day, day).collect().await.unwrap();
    assert_eq!(there().await, [200, 404, 404], "its time begins as the last image goes");
    blobs(now, now).collect().await.unwrap();
    assert_eq!(there().await, [404, 404, 404]);
}
