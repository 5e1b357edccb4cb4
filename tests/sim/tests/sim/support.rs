//! A real rack in the lab that works from concern files, and consoles for BMCs.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use basalt_api::agent::{
    BlobRef, DiskSelector, Erase, EraseLevel, Install, NoCloudSeed, Task, TaskAction, Then, Wipe,
};
use basalt_bmc::{BmcClient, BmcConfig, BmcError, BootDevice, Credentials, PowerVerb};
use basalt_lab::{Lab, LabError};
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, BootMachine, DhcpConcern, DhcpSubnet, EphemeralBoot, LocalBoot,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Given;
use basalt_rack::token::report;
use basalt_sim::{Firmware, SimMachine};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

/// Time limit of events that take a second on an idle host.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const KEY: [u8; 32] = [9; 32];
const UID: &str = "0198c0de-0000-7000-8000-000000000001";

/// A rack without a region.
pub(crate) struct Rack {
    data_dir: PathBuf,
    generation: u64,
    kernel: String,
    initrd: String,
    squashfs: String,
    image: BlobRef,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), LabError>>,
}

impl Rack {
    /// Creates a rack's data directory with a subnet and blobs. The rack does not run yet.
    pub(crate) fn new(lab: &Lab) -> Self {
        let data_dir = lab.directory().join("rack");
        std::fs::create_dir_all(data_dir.join("blobs")).unwrap();
        let blob = |name: &str, length: usize| {
            let bytes: Vec<u8> = name.bytes().cycle().take(length).collect();
            let sha256 = hex::encode(Sha256::digest(&bytes));
            std::fs::write(data_dir.join("blobs").join(&sha256), &bytes).unwrap();
            sha256
        };
        let rack = Self {
            generation: 0,
            kernel: blob("kernel", 3 << 20),
            initrd: blob("initrd", 5 << 20),
            squashfs: blob("squashfs", 2 << 20),
            image: BlobRef { sha256: blob("image", 9 << 20), size: 9 << 20 },
            data_dir,
            running: None,
        };
        let subnet = DhcpSubnet {
            subnet_uid: "lab".into(),
            cidr: "10.77.0.0/24".into(),
            gateway: "10.77.0.1".into(),
            dynamic: vec![AddressRange { start: "10.77.0.150".into(), end: "10.77.0.199".into() }],
            lease_seconds: 600,
            ..DhcpSubnet::default()
        };
        let concern = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
        write_concern(&rack.data_dir, &version(Concern::Dhcp, 1, "test", &concern)).unwrap();
        rack
    }

    /// Starts the daemon inside the lab.
    pub(crate) fn start(&mut self, lab: &Lab) {
        let given = Given {
            data_dir: Some(self.data_dir.clone()),
            name: Some("rack-1".into()),
            interface: Some(vec!["br0".into()]),
            ..Given::default()
        };
        let settings = given.settle().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = lab.inside(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let daemon = Daemon::start(settings).await.unwrap();
                ready.send(()).unwrap();
                let _dropped = stopped.await;
                daemon.stop().await;
            });
        });
        started.recv_timeout(LIMIT).expect("the rack starts");
        // Wait until its services run: ROMs repeat their DHCP and TFTP requests, but iPXE asks for its script only once.
        let served = lab.inside(|| {
            let end = Instant::now() + LIMIT;
            while TcpStream::connect(("10.77.0.1", 5248)).is_err() {
                assert!(Instant::now() < end, "the rack serves no HTTP");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        served.join().unwrap().unwrap();
        self.running = Some(Running { stop, thread });
    }

    /// Stops the daemon.
    pub(crate) fn stop(&mut self) {
        if let Some(Running { stop, thread }) = self.running.take() {
            drop(stop);
            thread.join().unwrap().unwrap();
        }
    }

    /// Gives the rack a new boot concern for a machine, a task or its disk, and restarts the rack: it reads its files only
    /// occasionally.
    pub(crate) fn tell(&mut self, lab: &Lab, machine: &SimMachine, task: Option<&Task>) {
        self.stop();
        self.write_boot(machine, task);
        self.start(lab);
    }

    fn write_boot(&mut self, machine: &SimMachine, task: Option<&Task>) {
        let action = task.map_or(Action::Local(LocalBoot {}), |task| {
            Action::Ephemeral(EphemeralBoot {
                attempt: task.attempt,
                not_after_unix_ms: task.not_after_unix_ms,
                kernel_sha256: self.kernel.clone(),
                initrd_sha256: self.initrd.clone(),
                squashfs_sha256: self.squashfs.clone(),
                kernel_options: String::new(),
                attempt_key: KEY.to_vec(),
                task_json: serde_json::to_vec(task).unwrap(),
                step_key: format!("step-{}", task.attempt),
                claimed_by: String::new(),
                checkpoint: Vec::new(),
            })
        });
        let machine = BootMachine {
            machine_uid: UID.into(),
            name: machine.options().name.clone(),
            macs: vec![machine.options().mac.to_string()],
            action: Some(action),
            networks: Vec::new(),
            architecture: "amd64".into(),
        };
        let concern = BootConcern { machines: vec![machine], enlist: None };
        self.generation += 1;
        write_concern(&self.data_dir, &version(Concern::Boot, self.generation, "test", &concern)).unwrap();
    }

    /// A task that installs the image.
    pub(crate) fn install(&self, attempt: u64) -> Task {
        let token = report::mint(&KEY, attempt, UID);
        let install = Install {
            image: self.image.clone(),
            disk: DiskSelector::default(),
            storage: None,
            wipe: Wipe::IfOurs,
            hostname: "web1".into(),
            kernel_options: String::new(),
            netplan: "network:\n  version: 2\n  ethernets:\n    \"eth0\":\n      dhcp4: true\n".into(),
            ntp_servers: Vec::new(),
            packages: None,
            log_to: None,
            log_receivers: Vec::new(),
            seed: NoCloudSeed {
                vendor_data: format!(
                    "#cloud-boothook\n#!/bin/sh\nreport() {{\n    for url in 'http://10.77.0.1:5248/report/{token}'; do\n    \
                     post \"$url/$1\"\n    done\n}}\n(report booted; cloud-init status --wait && sync && report cloud_init) &\n"
                ),
                ..NoCloudSeed::default()
            },
            first_boot: None,
        };
        task(attempt, TaskAction::Install(Box::new(install)), Then::Reboot)
    }

    /// Replaces the image in the rack's cache.
    pub(crate) fn replace_image(&self) {
        std::fs::write(self.data_dir.join("blobs").join(&self.image.sha256), "something else").unwrap();
    }

    /// Flips one bit of the image, as a bad disk does: the file keeps its modification time. The running rack has verified
    /// the image before.
    pub(crate) fn rot_image(&self, lab: &Lab) {
        let sha256 = self.image.sha256.clone();
        let asked = lab.inside(move || {
            let mut stream = TcpStream::connect(("10.77.0.1", 5248)).unwrap();
            write!(stream, "GET /blobs/{sha256} HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer
        });
        assert!(asked.join().unwrap().unwrap().len() as u64 > self.image.size, "the rack serves the image");
        let file = File::options()
            .read(true)
            .write(true)
            .open(self.data_dir.join("blobs").join(&self.image.sha256))
            .unwrap();
        let changed = file.metadata().unwrap().modified().unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.image.size / 2).unwrap();
        file.write_all_at(&[byte[0] ^ 1], self.image.size / 2).unwrap();
        file.set_modified(changed).unwrap();
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.running.take();
    }
}

/// A task that reads the hardware.
pub(crate) fn inventory(attempt: u64) -> Task {
    task(attempt, TaskAction::Inventory, Then::PowerOff)
}

/// A task that erases all disks.
pub(crate) fn erase(attempt: u64) -> Task {
    task(attempt, TaskAction::Erase(Erase { level: EraseLevel::Full, wipe: Wipe::IfOurs }), Then::PowerOff)
}

fn task(attempt: u64, action: TaskAction, then: Then) -> Task {
    Task {
        attempt,
        not_after_unix_ms: i64::MAX,
        machine_uid: UID.into(),
        scripts: Vec::new(),
        proxy: None,
        bmc: None,
        action,
        then,
    }
}

/// Sends a request to a machine's BMC, from inside the lab.
pub(crate) async fn bmc<T, F, Fut>(lab: &Lab, machine: &SimMachine, ask: F) -> Result<T, BmcError>
where
    T: Send + 'static,
    F: FnOnce(BmcClient) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, BmcError>>,
{
    let options = machine.options();
    let credentials = Credentials::new(&options.bmc_user, &options.bmc_password).unwrap();
    let config = BmcConfig::new(options.bmc_socket(), credentials);
    lab.run_inside(move || ask(BmcClient::new(config))).await.unwrap()
}

/// Boots a machine from the network, by IPMI.
pub(crate) async fn netboot(lab: &Lab, machine: &SimMachine) {
    let efi = machine.options().firmware == Firmware::Uefi;
    bmc(lab, machine, move |bmc| async move {
        bmc.set_boot_device(BootDevice::Pxe, true, efi).await?;
        bmc.power(PowerVerb::On).await
    })
    .await
    .unwrap();
}
