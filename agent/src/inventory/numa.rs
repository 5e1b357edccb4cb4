//! NUMA nodes with their hardware threads and memory.

use basalt_api::agent::NumaNode;
use basalt_api::kinds::MAX_NUMA_NODES;

use crate::root::Root;

const NODES: &str = "sys/devices/system/node";

/// All nodes, sorted by number.
pub(super) fn nodes(root: &Root) -> Vec<NumaNode> {
    let names = root.names(NODES);
    let mut numbers: Vec<u16> =
        names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.truncate(MAX_NUMA_NODES);
    let block_bytes = block_bytes(root);
    let node = |number: u16| NumaNode {
        number,
        cpus: root.text(format!("{NODES}/node{number}/cpulist")).unwrap_or_default(),
        memory_bytes: block_bytes.and_then(|bytes| bytes.checked_mul(blocks(root, number))),
    };
    numbers.into_iter().map(node).collect()
}

/// The NUMA node of a device's directory. The kernel writes -1 for none.
pub(super) fn of_device(root: &Root, directory: &str) -> Option<u16> {
    root.number(format!("{directory}/numa_node"))
}

/// The size of a memory block. The node's `MemTotal` is no measure: it lacks the memory that the kernel took for itself, and this
/// differs from boot to boot.
fn block_bytes(root: &Root) -> Option<u64> {
    let text = root.text("sys/devices/system/memory/block_size_bytes")?;
    u64::from_str_radix(&text, 16).ok()
}

/// The number of memory blocks of a node.
fn blocks(root: &Root, number: u16) -> u64 {
    let names = root.names(format!("{NODES}/node{number}"));
    let is_block =
        |name: &&String| name.strip_prefix("memory").is_some_and(|number| number.parse::<u64>().is_ok());
    u64::try_from(names.iter().filter(is_block).count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_node_has_its_threads_and_its_memory_in_whole_blocks() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("system/memory/block_size_bytes", "8000000\n"),
            ("system/node/node0/cpulist", "0-3,8-11\n"),
            ("system/node/node0/meminfo", "Node 0 MemTotal:         261004 kB\n"),
            ("system/node/node0/memory0/state", "online\n"),
            ("system/node/node0/memory9/state", "online\n"),
            ("system/node/node0/memory_side_cache/size", "1\n"),
            ("system/node/node10/cpulist", "4-7\n"),
            ("system/node/node2/cpulist", "\n"),
            ("system/node/node2/memory32/state", "online\n"),
            ("system/node/power/control", "auto\n"),
        ] {
            let file = dir.path().join("sys/devices").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let node = |number, cpus: &str, blocks: u64| NumaNode {
            number,
            cpus: cpus.to_owned(),
            memory_bytes: Some(blocks << 27),
        };
        let root = Root::at(dir.path());
        assert_eq!(nodes(&root), [node(0, "0-3,8-11", 2), node(2, "", 1), node(10, "4-7", 0)]);
        fs::remove_file(root.path("sys/devices/system/memory/block_size_bytes")).unwrap();
        assert!(nodes(&root).iter().all(|node| node.memory_bytes.is_none()));
    }
}
