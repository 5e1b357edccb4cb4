//! Processors, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use basalt_api::agent::Cpu;

use crate::root::Root;

pub(super) fn read(root: &Root) -> Cpu {
    let nodes = root.names("sys/devices/system/node");
    let is_node = |name: &&String| name.strip_prefix("node").is_some_and(|it| it.parse::<u32>().is_ok());
    let numa_nodes = count(nodes.iter().filter(is_node).count());
    Cpu { numa_nodes, ..parse(&root.text("proc/cpuinfo").unwrap_or_default()) }
}

fn parse(cpuinfo: &str) -> Cpu {
    let (mut model, mut microcode) = (String::new(), String::new());
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
            microcode = field("microcode").unwrap_or_default();
        }
        // A kernel without topology reports neither. Then every thread counts as a core of one socket.
        let socket = field("physical id").unwrap_or_default();
        let core = field("core id").unwrap_or(number);
        cores.insert((socket.clone(), core));
        sockets.insert(socket);
    }
    let (sockets, cores) = (count(sockets.len()), count(cores.len()));
    Cpu { model, sockets, cores, threads, microcode, numa_nodes: 0 }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(number: u32, socket: u32, core: u32) -> String {
        format!(
            "processor\t: {number}\nmodel name\t: Invented CPU 3000\nmicrocode\t: 0xd0003e7\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n"
        )
    }

    #[test]
    fn counts_sockets_cores_and_threads() {
        let text: String = (0..8).map(|n| processor(n, n / 4, (n % 4) / 2)).collect();
        let cpu = parse(&text);
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (2, 4, 8));
        assert_eq!((&*cpu.model, &*cpu.microcode), ("Invented CPU 3000", "0xd0003e7"));
    }

    #[test]
    fn numa_nodes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["node0", "node1", "power"] {
            std::fs::create_dir_all(dir.path().join("sys/devices/system/node").join(name)).unwrap();
        }
        assert_eq!(read(&Root::at(dir.path())).numa_nodes, 2);
    }

    #[test]
    fn without_topology_every_thread_is_a_core() {
        let cpu = parse("processor: 0\n\nprocessor: 1\n");
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (1, 2, 2));
    }
}
