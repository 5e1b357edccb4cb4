//! Uploading and downloading blobs.

use crate::support::{Answer, Lab, lab};
use serde_json::json;

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
    assert_eq!((head.status.as_u16(), &head.headers["upload-offset"]), (404, &"1500".parse().unwrap()));
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
    assert_eq!(lab.api.send("HEAD", &path, &[], "").await.headers["upload-offset"], "0");
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
