//! Starts the part of the agent that its program name and its arguments select.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

use std::path::Path;
use std::process::ExitCode;

use basalt_agent::{dhcp_event, initrd, modules, supervise, test, work};

const USAGE: &str = "usage: basalt-agent ephemeral | work | test

  ephemeral   first process of the ephemeral root: starts the worker and looks after it
  work        claim this boot's task from the rack named on the kernel command line, run it, report it, and power off or reboot
  test        test a part of the hardware; without arguments it lists the tests

As /init of an initrd it takes no arguments; as modprobe and dhcp-event it is called by the kernel and by udhcpc; as reboot it restarts \
                     the machine.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let name = args.first().map_or("", String::as_str);
    let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("");
    match (name, args.get(1).map(String::as_str)) {
        ("init", _) if std::process::id() == 1 => initrd::run(),
        ("modprobe", _) => modules::modprobe(args.get(1..).unwrap_or_default()),
        ("dhcp-event", Some(event)) => dhcp_event::apply(event),
        ("reboot", _) => work::restart_now(),
        (_, Some("ephemeral")) => supervise::run(),
        (_, Some("work")) => work::run(),
        (_, Some("test")) => test::run(args.get(2..).unwrap_or_default()),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
