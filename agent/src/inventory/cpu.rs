//! Processors, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use basalt_api::agent::{Cpu, NumaNode};
use basalt_api::kinds::MAX_FLAGS;

use crate::root::Root;

pub(super) fn read(root: &Root, nodes: &[NumaNode]) -> Cpu {
    let numa_nodes = count(nodes.len());
    Cpu { numa_nodes, ..parse(&root.text("proc/cpuinfo").unwrap_or_default()) }
}

fn parse(cpuinfo: &str) -> Cpu {
    let (mut model, mut microcode) = (String::new(), String::new());
    let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
    let (mut threads, mut flags) = (0, None);
    for processor in cpuinfo.split("\n\n") {
        let field = |wanted: &str| {
            processor.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == wanted).then(|| value.trim().to_owned())
            })
        };
        let Some(number) = field("processor") else { continue };
        threads += 1;
        // The kernel of x86 calls them flags, the one of ARM features. Processors of one machine may differ: only common ones count.
        let own = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let own: BTreeSet<String> = own.split_ascii_whitespace().map(str::to_owned).collect();
        flags = Some(match flags {
            None => own,
            Some(common) => &common & &own,
        });
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
    let flags = flags.into_iter().flatten().take(MAX_FLAGS).collect();
    Cpu { model, sockets, cores, threads, microcode, numa_nodes: 0, flags }
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
    fn flags_are_those_that_every_processor_has() {
        let flags = |text: &str| parse(text).flags;
        assert_eq!(
            flags("processor: 0\nflags\t: sse2 fpu avx512f\n\nprocessor: 1\nflags\t: sse2 avx2 fpu\n"),
            ["fpu", "sse2"]
        );
        assert_eq!(flags("processor: 0\nFeatures\t: fp asimd\n"), ["asimd", "fp"]);
        assert_eq!(flags("processor: 0\nflags: sse2\n\nprocessor: 1\n"), [""; 0]);
        let many: String = (0..5000).map(|n| format!(" flag{n}")).collect();
        assert_eq!(flags(&format!("processor: 0\nflags:{many}\n")).len(), MAX_FLAGS);
    }

    #[test]
    fn without_topology_every_thread_is_a_core() {
        let cpu = parse("processor: 0\n\nprocessor: 1\n");
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (1, 2, 2));
    }
}
