//! Three members of etcd on this machine, with TLS and users, that tests kill and freeze.
//!
//! A shell stands between the test and each member: it ends the member when the test process ends, however
//! that ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use shoal_base::secret::Secret;
use shoal_registry::engine::etcd::{Etcd, Settings};
use tokio::time::Instant;

pub(crate) const PASSWORD: &str = "correct-horse";

/// Runs etcd until standard input ends, then removes the folder of the cluster.
const KEEPER: &str = r#"
folder=$1; shift
etcd "$@" > /dev/null 2>> "$folder/etcd.log" &
echo $!
read -r _
kill -9 $! 2> /dev/null
rm -rf "$folder"
"#;

pub(crate) struct Cluster {
    folder: PathBuf,
    members: Mutex<Vec<Running>>,
    ports: Vec<(u16, u16)>,
    arguments: Vec<String>,
}

struct Running {
    keeper: Child,
    process: Pid,
}

impl Cluster {
    /// Starts etcd with further arguments; `None` where it is not installed.
    pub(crate) async fn start(size: usize, arguments: &[&str]) -> Option<Self> {
        for program in ["etcd", "etcdctl", "openssl"] {
            if Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output()
                .unwrap()
                .stdout
                .is_empty()
            {
                eprintln!("skipped: {program} is not installed");
                return None;
            }
        }
        let folder = tempfile::Builder::new()
            .prefix("shoal-etcd-")
            .tempdir()
            .unwrap()
            .keep();
        make_certificates(&folder);
        let cluster = Self {
            folder,
            members: Mutex::default(),
            ports: free_ports(size),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        for member in 0..size {
            let running = cluster.run(member);
            cluster.members.lock().unwrap().push(running);
        }
        cluster.wait().await;
        for command in [
            "user add root:secret",
            "user grant-role root root",
            "role add shoal",
            "role grant-permission shoal readwrite --prefix=true shoal/",
            &format!("user add shoal:{PASSWORD}"),
            "user grant-role shoal shoal",
            "auth enable",
        ] {
            cluster.control(command);
        }
        Some(cluster)
    }

    /// A registry with the keys below a prefix.
    pub(crate) fn engine(&self, prefix: &str, timeout: Duration) -> Etcd {
        let prefix = format!("shoal/{prefix}/");
        Etcd::new(&Settings {
            prefix,
            timeout,
            ..self.settings()
        })
        .unwrap()
    }

    pub(crate) fn settings(&self) -> Settings {
        let endpoints: Vec<_> = (0..self.ports.len())
            .map(|member| self.endpoint(member))
            .collect();
        let client_certificate = (self.folder.join("member.pem"), self.folder.join("member.key"));
        Settings {
            client_certificate: Some(client_certificate),
            ca_file: Some(self.folder.join("ca.pem")),
            user: Some(("shoal".into(), Secret::new(PASSWORD))),
            ..Settings::at(endpoints.join(","))
        }
    }

    pub(crate) fn endpoint(&self, member: usize) -> String {
        format!("https://127.0.0.1:{}", self.ports[member].0)
    }

    pub(crate) fn size(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn kill(&self, member: usize) {
        self.signal(member, Signal::KILL);
    }

    pub(crate) fn freeze(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    pub(crate) fn thaw(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    /// Starts a member that was killed. Its keeper stays for the sake of the folder.
    pub(crate) fn restart(&self, member: usize) {
        let running = self.run(member);
        let mut members = self.members.lock().unwrap();
        let before = std::mem::replace(&mut members[member], running);
        std::mem::forget(before);
    }

    /// Waits until a majority answers.
    pub(crate) async fn wait(&self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_mins(1) {
            if self.leader().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = fs::read_to_string(self.folder.join("etcd.log")).unwrap_or_default();
        panic!("etcd has no leader: {}", &log[log.len().saturating_sub(2000)..]);
    }

    /// The member that leads the others.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.size()).find(|member| {
            let status = self.try_control(&format!("--endpoints={} endpoint status", self.endpoint(*member)));
            // Endpoint, id, version, size, leads.
            status.is_ok_and(|status| status.split(", ").nth(4) == Some("true"))
        })
    }

    /// Runs etcdctl as root.
    pub(crate) fn control(&self, command: &str) -> String {
        self.try_control(&format!("--endpoints={} {command}", self.settings().endpoints))
            .unwrap()
    }

    fn try_control(&self, command: &str) -> Result<String, String> {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl
            .env("ETCDCTL_API", "3")
            .arg("--cacert")
            .arg(self.folder.join("ca.pem"))
            .arg("--cert")
            .arg(self.folder.join("member.pem"))
            .arg("--key")
            .arg(self.folder.join("member.key"));
        etcdctl.args(["--user=root:secret", "--dial-timeout=1s", "--command-timeout=5s"]);
        let output = etcdctl.args(command.split(' ')).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn run(&self, member: usize) -> Running {
        let peer = |member: usize| format!("https://127.0.0.1:{}", self.ports[member].1);
        let initial: Vec<_> = (0..self.size())
            .map(|member| format!("m{member}={}", peer(member)))
            .collect();
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut arguments = vec![
            format!("--name=m{member}"),
            format!("--data-dir={}", path(&format!("m{member}"))),
            format!("--listen-client-urls={}", self.endpoint(member)),
            format!("--advertise-client-urls={}", self.endpoint(member)),
            format!("--listen-peer-urls={}", peer(member)),
            format!("--initial-advertise-peer-urls={}", peer(member)),
            format!("--initial-cluster={}", initial.join(",")),
            "--initial-cluster-state=new".into(),
            "--logger=zap".into(),
        ];
        for side in ["", "peer-"] {
            arguments.push(format!("--{side}cert-file={}", path("member.pem")));
            arguments.push(format!("--{side}key-file={}", path("member.key")));
        }
        arguments.push(format!("--peer-trusted-ca-file={}", path("ca.pem")));
        if self
            .arguments
            .iter()
            .any(|argument| argument == "--client-cert-auth")
        {
            arguments.push(format!("--trusted-ca-file={}", path("ca.pem")));
        }
        arguments.push("--peer-client-cert-auth".into());
        arguments.extend(self.arguments.iter().cloned());
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&self.folder)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = String::new();
        BufReader::new(keeper.stdout.take().unwrap())
            .read_line(&mut process)
            .unwrap();
        let process = Pid::from_raw(process.trim().parse().unwrap()).unwrap();
        Running { keeper, process }
    }

    fn signal(&self, member: usize, signal: Signal) {
        kill_process(self.members.lock().unwrap()[member].process, signal).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for running in self.members.get_mut().unwrap() {
            drop(running.keeper.stdin.take());
        }
        for running in self.members.get_mut().unwrap() {
            running.keeper.wait().unwrap();
        }
    }
}

/// Ports that are free now.
fn free_ports(pairs: usize) -> Vec<(u16, u16)> {
    let bound: Vec<_> = (0..pairs * 2)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports: Vec<_> = bound
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    ports.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A CA that nobody else knows, and a certificate for the members.
fn make_certificates(folder: &std::path::Path) {
    let names = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    fs::write(folder.join("names"), names).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for command in [
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"),
        &format!("req -x509 {key} -keyout other.key -out other.pem -days 2 -subj /CN=other-ca"),
        &format!("req {key} -keyout member.key -out member.csr -subj /O=shoal-tests"),
        "x509 -req -in member.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out member.pem",
    ] {
        let made = Command::new("openssl")
            .current_dir(folder)
            .args(command.split(' '))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}
