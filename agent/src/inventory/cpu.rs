//! Processors, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use basalt_api::agent::Cpu;

use crate::root::Root;

pub(super) fn read(root: &Root) -> Cpu {
    parse(&root.text("proc/cpuinfo").unwrap_or_default())
}

fn parse(cpuinfo: &str) -> Cpu {
    let mut model = String::new();
    let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
    let mut threads = 0;
    for processor in cpuinfo.split("\n\n") {
        let field = |wanted: &str| {
            processor.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == wanted).then(|| value.trim().to_owned())
            })
        };
        let Some(number) = field("processor") else { continue };
        threads += 1;
        if model.is_empty() {
            model = field("model name").unwrap_or_default();
        }
        // A kernel without topology lists neither: then every thread is a core of one socket.
        let socket = field("physical id").unwrap_or_default();
        let core = field("core id").unwrap_or(number);
        cores.insert((socket.clone(), core));
        sockets.insert(socket);
    }
    Cpu { model, sockets: count(sockets.len()), cores: count(cores.len()), threads }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(number: u32, socket: u32, core: u32) -> String {
        format!(
            "processor\t: {number}\nmodel name\t: Invented CPU 3000\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n"
        )
    }

    #[test]
    fn counts_sockets_cores_and_threads() {
        let text: String = (0..8).map(|n| processor(n, n / 4, (n % 4) / 2)).collect();
        assert_eq!(
            parse(&text),
            Cpu { model: "Invented CPU 3000".to_owned(), sockets: 2, cores: 4, threads: 8 }
        );
    }

    #[test]
    fn without_topology_every_thread_is_a_core() {
        let cpu = parse("processor: 0\n\nprocessor: 1\n");
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (1, 2, 2));
    }
}
