use super::*;
use crate::kinds::{
    Architecture, Cpu, Disk, Gpu, Interface, Inventory, MemoryModule, Neighbour, NeighbourProtocol, UsbDevice,
};
use std::time::{Duration, Instant};

fn server() -> Inventory {
    let mut inventory = Inventory { memory_bytes: 64 << 30, ..Inventory::default() };
    inventory.tpm = Some("2.0".to_owned());
    let module = MemoryModule { technology: Some("DDR5".to_owned()), ..MemoryModule::new(64 << 30) };
    inventory.memory_modules.insert("DIMM_A1".to_owned(), module);
    inventory.cpu = Cpu { model: Some("AMD EPYC 7313".to_owned()), cores: 32, ..Cpu::default() };
    inventory.cpu.x86_64_level = Some(3);
    inventory.cpu.flags = (0..200).map(|n| format!("flag{n}")).chain(["avx2".to_owned()]).collect();
    let stick = UsbDevice { serial: Some("77".to_owned()), ..UsbDevice::new("0781".into(), "5583".into()) };
    inventory.usb.insert("pci-0000:00:14.0-usb2-1.4".to_owned(), stick);
    for (name, size, rotational) in
        [("sda", 4_000_000_000_000_u64, true), ("nvme0n1", 1_000_000_000_000, false)]
    {
        inventory.disks.insert(name.to_owned(), Disk { rotational, ..Disk::new(size) });
    }
    inventory.gpus.insert("0000:3b:00.0".to_owned(), Gpu::new("nvidia".to_owned(), "20b5".to_owned()));
    let mut eno1 = Interface::new("52:54:00:00:00:01".parse().unwrap());
    let mut leaf = Neighbour::new(NeighbourProtocol::Lldp, "00:1c:73:0a:0b:0c".to_owned(), "Eth7".to_owned());
    (leaf.system_name, leaf.native_vlan) = (Some("leaf-1.example.com".to_owned()), Some(7));
    eno1.firmware = Some("4.40 0x8001c967".to_owned());
    eno1.neighbours.insert("leaf-1.example.com".to_owned(), leaf);
    inventory.interfaces.insert("eno1".to_owned(), eno1);
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
        "!secure_boot && tpm == '2.0' && memory_modules.all(m, m.technology == 'DDR5')",
        "gpus.all(g, g.vendor in ['nvidia', 'amd'])",
        "cpu.x86_64_level >= 3 && 'avx2' in cpu_flags && !cpu_flags.exists(f, f.startsWith('avx512'))",
        "interfaces.all(i, i.firmware.startsWith('4.')) && disks.all(d, d.firmware == '')",
        "usb.exists(u, u.vendor == '0781' && u.product == '5583' && u.serial == '77')",
        "neighbours.exists(n, n.system_name.startsWith('leaf-1.') && n.interface == 'eno1' && n.native_vlan == 7)",
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

/// Each runs on a thread with half the stack of a worker: a stack overflow would end a region.
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
    // Texts in which a bracket inside a string looks as if it were outside, or the reverse.
    for begin in ["'''a'b''' == name || ", "r'\\' == name || ", "name == '' //'\n|| ", "'\\q", "'\n", "r"] {
        for n in [13, 40, 100, 480] {
            texts.extend([
                format!("{begin}{}", deep("(", ")", n)),
                format!("{begin}{}", deep("[", "]", n)),
                format!("{begin}{}", chain("+1", n)),
                format!("{begin}{}true", "!".repeat(2 * n)),
                format!("{begin}{}1 == 1", "-".repeat(2 * n)),
                format!("{begin}{}true", "true?".repeat(n)),
            ]);
        }
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

/// The inventory of a machine with lists of `list` elements and texts of `text` bytes.
fn large(list: usize, text: usize) -> Inventory {
    let mut inventory = server();
    let long = || Some("x".repeat(text));
    inventory.disks = (0..list)
        .map(|n| (format!("sd{n}"), Disk { serial: long(), model: long(), ..Disk::new(1) }))
        .collect();
    inventory.dmi.serial = long();
    inventory
}

#[test]
fn what_would_take_long_is_counted_before_it_begins() {
    let pairs = "disks.all(a, disks.all(b, a.name == b.name || a.bytes != b.bytes || a.model == b.model))";
    let expression = Expression::parse(pairs).unwrap();
    assert!(expression.holds(&described(Some(&server()))).is_ok());
    let error = expression.holds(&described(Some(&large(250, 9)))).unwrap_err();
    assert!(matches!(error, ExpressionError::Costly { .. }), "{error}");
    for (list, text, error) in [
        (257, 9, "the expression has 257 elements in a list of the machine's inventory; at most 256"),
        (1, 1025, "the expression has 1025 bytes in a text of the machine's inventory; at most 1024"),
    ] {
        let found = large(list, text);
        let refused = Expression::parse("disk.count > 1").unwrap().holds(&described(Some(&found)));
        assert_eq!(refused.unwrap_err().to_string(), error);
    }
}

/// Each enlarges its input some thousand times, in a different way.
#[test]
fn an_expression_that_makes_much_of_little_is_refused_before_it_is_evaluated() {
    let chain = |begin: &str, link: &str, n: usize| format!("{begin}{}.exists(a, a == 'x')", link.repeat(n));
    for text in [
        chain("[name]", ".map(a, a + a + a + a)", 13),
        chain("[name]", ".map(a, [a, a, a, a])", 13),
        chain("[name]", ".map(a, {'a': a, 'b': a, 'c': a, 'd': a})", 7),
        chain("[dmi.serial]", ".map(a, a + a + a + a)", 9),
        chain("[disks]", ".map(a, a + a + a + a)", 7),
        chain("disks", ".map(a, [a, a]).filter(a, a == a)", 9),
        chain("disks", ".map(a, disks)", 3),
        "disks.map(a, disks.map(b, disks)).exists(a, a == [])".to_owned(),
        format!("disks.exists(a, disks.exists(b, {} == ''))", ["a.serial"; 25].join("+")),
    ] {
        let error = Expression::parse(&text).unwrap_err();
        assert!(matches!(error, ExpressionError::Costly { .. }), "{text}: {error}");
    }
    // People do write a few repetitions.
    assert!(holds("[name].map(a, a + '-' + a).map(a, a + a).exists(a, a == 'web-1-web-1web-1-web-1')"));
}

/// Least number of bytes that a value takes in the library's memory.
fn weight(value: &Value) -> u64 {
    let wide = |length: usize| u64::try_from(length).unwrap();
    match value {
        Value::String(text) => 24 + wide(text.len()),
        Value::List(items) => 24 + items.iter().map(weight).sum::<u64>(),
        Value::Map(map) => 48 + map.map.values().map(|value| 40 + weight(value)).sum::<u64>(),
        _ => 16,
    }
}

#[test]
fn no_value_is_larger_than_its_bound() {
    let found = large(7, 100);
    let machine = described(Some(&found));
    for text in [
        "name",
        "dmi.serial + name + '-' + 'x'",
        "string(1e-308)",
        "true ? disks : []",
        "disks",
        "disks + disks + [1, 2]",
        "disks.filter(d, !d.rotational)",
        "disks.filter(d, d.name != 'sd0').map(d, d.serial)",
        "disks.map(d, d.serial + d.serial).map(s, [s, s, s])[0]",
        "disks.map(d, d.rotational, disks)",
        "disks.map(a, disks.filter(b, b.name == a.name))",
        "disks.map(a, {'serial': a.serial, 'all': disks})[6].all",
        "[disks, [name]].map(a, a + a)",
        "disks.exists_one(d, d.name == 'sd3')",
        "[[], [1], [[name]]]",
    ] {
        let (root, source) = PARSING.parser().parse_with_source_info(text).unwrap();
        let at = |id| source.offset_for(id).map_or(1, |(start, _)| start);
        let roots = walk::walk(&root, &at).unwrap().roots;
        let mut context = cel::Context::with_env(ENV.clone());
        variables::bind(&mut context, &machine, &roots);
        let value = Value::resolve(&root, &context).unwrap();
        let (steps, size) = size::count(&root, &roots, &variables::limits(&machine));
        assert!(weight(&value) <= size.bytes, "{text}: {} <= {size:?}", weight(&value));
        assert!(steps > 0, "{text}");
    }
}

/// An error may quote a value. At most one line of it is written.
#[test]
fn an_error_about_a_large_value_is_short() {
    let found = large(256, 1024);
    let expression = Expression::parse("disks.size() < 200 || disks - 1 == 0").unwrap();
    let error = expression.holds(&described(Some(&found))).unwrap_err().to_string();
    assert!(error.chars().count() < 250, "{error}");
}
