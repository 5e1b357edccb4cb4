//! Measures the events of 2,000 new machines for 200 watchers. For comparison, a loop writes the same bytes to 200 sockets.

use std::time::{Duration, Instant};

use basalt_api::wire::ApplyRequest;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::site::{Failed, Site, documents};
use crate::{Figures, median};

const RUNS: usize = 3;
const READERS: usize = 200;
const CHANGES: usize = 2_000;

/// The timeout of a run.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(site: &Site) -> Result<Figures, Failed> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let (rate, bytes) = tokio::time::timeout(PATIENCE, watched(site, run)).await??;
        ours.push(rate);
        theirs.push(tokio::time::timeout(PATIENCE, written(bytes)).await??);
    }
    let peer = "the same bytes from a loop over 200 sockets, nothing rendered, nothing stored";
    Ok(Figures::rates(median(ours), peer, median(theirs), "events/s"))
}

/// The events per second, from the request that causes them until every reader has all; and the bytes that one reader got.
async fn watched(site: &Site, run: usize) -> Result<(f64, usize), Failed> {
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut connection = site.connect().await?;
        let answer = connection.open("GET", "/api/v1/watch?kinds=machines", String::new()).await?;
        readers.push(tokio::spawn(async move {
            let (_open, mut body) = (connection, answer.into_body());
            let (mut events, mut bytes, mut unread) = (0, 0, Vec::new());
            while events < CHANGES {
                let frame = body.frame().await.ok_or("the watch has ended")??;
                let Ok(data) = frame.into_data() else { continue };
                bytes += data.len();
                unread.extend_from_slice(&data);
                events += unread.windows(PUT.len()).filter(|part| *part == PUT).count();
                // The rest may be the beginning of the next event.
                unread.drain(..unread.len().saturating_sub(PUT.len() - 1));
            }
            Ok::<usize, Failed>(bytes)
        }));
    }
    let documents = documents(run, CHANGES)?;
    // The time of the apply counts: some events arrive before its answer.
    let begin = Instant::now();
    site.client.apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
    let mut bytes = 0;
    for reader in readers {
        bytes = reader.await??;
    }
    Ok(((READERS * CHANGES) as f64 / begin.elapsed().as_secs_f64(), bytes))
}

/// The beginning of an event with an object's state.
const PUT: &[u8] = b"\nevent: put\n";

/// The rate of the same bytes, written directly to sockets.
async fn written(bytes: usize) -> Result<f64, Failed> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let (mut readers, mut writers) = (Vec::new(), Vec::new());
    for _ in 0..READERS {
        let (stream, accepted) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
        writers.push(accepted?.0);
        let mut stream = stream?;
        readers.push(tokio::spawn(async move {
            let (mut rest, mut buffer) = (bytes, vec![0; 16 << 10]);
            while rest > 0 {
                match stream.read(&mut buffer).await? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => rest -= read,
                }
            }
            Ok::<(), std::io::Error>(())
        }));
    }
    let event = vec![b'x'; bytes / CHANGES];
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for mut writer in writers {
        let event = event.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..CHANGES {
                writer.write_all(&event).await?;
            }
            writer.write_all(&vec![b'x'; bytes - event.len() * CHANGES]).await
        }));
    }
    for task in tasks {
        task.await??;
    }
    for reader in readers {
        reader.await??;
    }
    Ok((READERS * CHANGES) as f64 / begin.elapsed().as_secs_f64())
}
