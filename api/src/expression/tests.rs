use super::*;
use crate::kinds::{Architecture, Cpu, Disk, Gpu, Inventory};
use std::time::{Duration, Instant};

fn server() -> Inventory {
    let mut inventory = Inventory { memory_bytes: 64 << 30, ..Inventory::default() };
    inventory.cpu = Cpu { model: Some("AMD EPYC 7313".to_owned()), cores: 32, ..Cpu::default() };
    for (name, size, rotational) in
        [("sda", 4_000_000_000_000_u64, true), ("nvme0n1", 1_000_000_000_000, false)]
    {
        inventory.disks.insert(name.to_owned(), Disk { rotational, ..Disk::new(size) });
    }
    inventory.gpus.insert("0000:3b:00.0".to_owned(), Gpu::new("nvidia".to_owned(), "20b5".to_owned()));
    inventory
}

fn described(inventory: Option<&Inventory>) -> Subject<'_> {
    Subject { name: "web-1", architecture: Architecture::Amd64, zone: "row-1", pool: "default", inventory }
}

fn holds(text: &str) -> bool {
    let inventory = server();
    Expression::parse(text).unwrap().holds(&described(Some(&inventory))).unwrap()
}

fn refused(text: &str) -> String {
    Expression::parse(text).unwrap_err().to_string()
}

#[test]
fn an_expression_is_a_truth_about_one_machine() {
    for text in [
        "cpu.cores >= 32 && gpu.count > 0",
        "cpu.model.contains('EPYC') && memory.mib == 65536",
        "disks.exists(d, !d.rotational && d.bytes >= 1000000000000)",
        "disks.filter(d, d.rotational).size() == 1",
        "gpus.all(g, g.vendor in ['nvidia', 'amd'])",
        "zone == 'row-1' ? name.startsWith('web-') : false",
        "disk.bytes / disk.count > 2000000000000",
    ] {
        assert!(holds(text), "{text}");
    }
    assert!(!holds("cpu.cores > 32"));
}

#[test]
fn what_asks_for_hardware_is_not_true_before_it_is_known() {
    let truth = |text: &str| Expression::parse(text).unwrap().holds(&described(None)).unwrap();
    assert!(truth("zone == 'row-1'") && !truth("cpu.cores < 8") && !truth("gpu.count == 0"));
}

#[test]
fn mistakes_are_found_when_it_is_read_with_their_place() {
    let texts = [
        "cpu.cores >",
        "cpu.coors > 3",
        "core > 3",
        "disks.count > 3",
        "cpu.cores > 'many'",
        "cpu.cores + 1",
        "name.matches('web-.*')",
        "dyn(3) == 3",
        "name.exists(c, true)",
        "(disks + disks).exists(d, true)",
        "disks.exists(d, d.size > 3)",
        "cpu['cores'] == 3",
        "disks.exists(a, disks.exists(b, disks.exists(c, a == b)))",
    ];
    let said: Vec<_> = texts.iter().map(|text| format!("{text}  =>  {}", refused(text))).collect();
    insta::assert_snapshot!(said.join("\n"));
}

/// Each in a thread with half the stack of a worker: what would overflow there would end a region.
#[test]
fn hostile_texts_neither_hang_nor_end_the_process() {
    let deep = |open: &str, close: &str, n: usize| format!("{}1{} == 1", open.repeat(n), close.repeat(n));
    let chain = |link: &str, n: usize| format!("1{} == 1", link.repeat(n));
    let mut texts: Vec<String> = Vec::new();
    for n in [11, 12, 13, 60, 100, 500, 100_000] {
        texts.extend([
            deep("(", ")", n),
            deep("[", "]", n),
            deep("{1:", "}", n),
            deep("size([", "])", n),
            chain("+1", n),
            chain(" - -1", n),
            format!("{}true", "!".repeat(n)),
            format!("{}1 == 1", "-".repeat(n)),
            format!("{} true", "true ||".repeat(n)),
            format!("{}true", "true ? ".repeat(n)),
            format!("{}true", "true ? true : ".repeat(n)),
            format!("cpu{}", ".cores".repeat(n)),
            format!("disks{}", "[0]".repeat(n)),
            format!("'{}' == name", "a".repeat(n)),
            format!("'{}", "\\".repeat(n)),
            "\u{0}\u{ffff}🦀\"'`".repeat(n),
            format!("name + name == '{}'", "\\x41".repeat(n)),
        ]);
    }
    texts.extend(
        [
            "",
            " ",
            "\n",
            "//",
            "'",
            "r'",
            "b'x' == b'x'",
            "1e999 > 1.0",
            "9223372036854775807 + 1 > 0",
            "1/0 == 1",
            "-9223372036854775808 / -1 == 1",
            "1 % 0 == 0",
            "int('x') == 1",
            "int(1e300) == 1",
            "string(1) == '1'",
            "[1][99999999999999999999]",
            "disks[-1].bytes > 1",
            "disks[9223372036854775807].bytes > 1",
            "[disks, disks].all(a, a.all(b, b == b))",
            "disks.map(a, disks.map(b, disks)) == []",
            "has(cpu.cores)",
            "has(cpu)",
            "{'a': 1}.a == 1",
            "x{}",
            "true && 1",
            "null",
            "type(1) == int",
            "\u{202e}true",
        ]
        .map(str::to_owned),
    );
    let mut inventory = server();
    for n in 0..255 {
        inventory.disks.insert(format!("sd{n}"), Disk::new(n));
    }
    let inventory = Arc::new(inventory);
    let begin = Instant::now();
    for text in texts {
        let inventory = inventory.clone();
        let start: String = text.chars().filter(|c| *c != '\0').take(20).collect();
        let thread = std::thread::Builder::new().stack_size(1 << 20).name(format!("{start}, {}", text.len()));
        let run = thread.spawn(move || {
            if let Ok(expression) = Expression::parse(&text) {
                let _ = expression.holds(&described(Some(&inventory)));
            }
        });
        run.unwrap().join().unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(60), "took {:?}", begin.elapsed());
}

#[test]
fn what_would_take_long_is_counted_before_it_begins() {
    let mut inventory = server();
    for n in 0..250 {
        inventory.disks.insert(format!("sd{n}"), Disk::new(n));
    }
    let pairs = "disks.all(a, disks.all(b, a.name == b.name || a.bytes != b.bytes || a.model == b.model))";
    let expression = Expression::parse(pairs).unwrap();
    assert!(expression.holds(&described(Some(&server()))).is_ok());
    let error = expression.holds(&described(Some(&inventory))).unwrap_err();
    assert!(matches!(error, ExpressionError::TooLarge { what: "steps for this machine", .. }), "{error}");
    for n in 0..10 {
        inventory.disks.insert(format!("sdx{n}"), Disk::new(n));
    }
    let error = Expression::parse("disk.count > 1").unwrap().holds(&described(Some(&inventory))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the expression has 262 elements in a list of the machine's inventory; at most 256"
    );
}
