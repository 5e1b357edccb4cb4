//! Copies bytes between two connections.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// The size of each direction's buffer, in bytes.
const BUFFER: usize = 64 << 10;

/// Copies in both directions until both have ended. An end of one direction is passed on, the other goes on.
///
/// # Errors
/// `io::Error`: a connection failed; or, as `TimedOut`, no byte was moved for `idle`, at most twice that.
pub async fn relay<A, B>(a: A, b: B, idle: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let moved = AtomicU64::new(0);
    let ((from_a, to_a), (from_b, to_b)) = (tokio::io::split(a), tokio::io::split(b));
    let both = async { tokio::try_join!(pump(from_a, to_b, &moved), pump(from_b, to_a, &moved)) };
    let mut both = std::pin::pin!(both);
    let mut before = 0;
    loop {
        tokio::select! {
            ended = &mut both => return ended.map(drop),
            () = tokio::time::sleep(idle) => {
                let now = moved.load(Ordering::Relaxed);
                if now == before {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                before = now;
            }
        }
    }
}

async fn pump<R, W>(mut from: ReadHalf<R>, mut to: WriteHalf<W>, moved: &AtomicU64) -> io::Result<()>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return to.shutdown().await;
        };
        to.write_all(bytes).await?;
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_is_passed_on_while_the_other_direction_goes_on() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let relaying = tokio::spawn(relay(near, far, Duration::from_secs(60)));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        server.read_to_string(&mut asked).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert_eq!((asked.as_str(), answered.as_str()), ("question", "answer"));
        relaying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn silence_ends_it_and_a_byte_now_and_then_does_not() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let relaying = tokio::spawn(relay(near, far, Duration::from_secs(3)));
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            client.write_all(b"x").await.unwrap();
            server.read_exact(&mut [0]).await.unwrap();
        }
        assert!(!relaying.is_finished());
        assert_eq!(relaying.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
