//! Writes the seeds of every target into folders of a directory. Prints for each target the edges that it must cover, and its
//! limit of memory in MiB: `fuzz-seeds DIR`.
#![expect(clippy::print_stdout, reason = "tests/fuzz/run reads it")]

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("fuzz-seeds: which directory?")?);
    for target in basalt_fuzz::TARGETS {
        println!("{} {} {}", target.name, target.edges, target.peak_mib);
        let folder = directory.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
