//! Members of etcd on this machine, with TLS and users.
//!
//! A shell stands between the test and each member: it ends the member when the test process ends, however
//! that ends.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shoal_base::secret::Secret;
use shoal_base::tls::OwnCertificate;
use shoal_registry::engine::etcd::{Etcd, Settings, User};
use tokio::time::Instant;

pub(crate) const PASSWORD: &str = "correct-horse";

/// Runs etcd until standard input ends, then removes the folder of the cluster. Notes the process of etcd in
/// a file.
const KEEPER: &str = r#"
folder=$1; process=$2; shift 2
etcd "$@" > /dev/null 2>> "$folder/etcd.log" &
echo $! > "$process"
read -r _
kill -9 $! 2> /dev/null
rm -rf "$folder"
"#;

pub(crate) struct Cluster {
    folder: PathBuf,
    /// The shell of each member.
    pub(crate) keepers: Mutex<Vec<Child>>,
    ports: Vec<(u16, u16)>,
    arguments: Vec<String>,
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
            keepers: Mutex::default(),
            ports: free_ports(size),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        for member in 0..size {
            let keeper = cluster.run(member);
            cluster.keepers.lock().unwrap().push(keeper);
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
        let client_certificate = OwnCertificate {
            certificate: self.folder.join("member.pem"),
            key: self.folder.join("member.key"),
        };
        Settings {
            client_certificate: Some(client_certificate),
            ca_file: Some(self.folder.join("ca.pem")),
            user: Some(user("shoal", PASSWORD)),
            ..Settings::at(endpoints.join(","))
        }
    }

    pub(crate) fn endpoint(&self, member: usize) -> String {
        format!("https://127.0.0.1:{}", self.ports[member].0)
    }

    pub(crate) fn size(&self) -> usize {
        self.ports.len()
    }

    /// Waits until a majority answers. Returns the member that leads the others.
    pub(crate) async fn wait(&self) -> usize {
        let began = Instant::now();
        while began.elapsed() < Duration::from_mins(1) {
            if let Some(leader) = self.leader() {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = fs::read_to_string(self.folder.join("etcd.log")).unwrap_or_default();
        panic!("etcd has no leader: {}", &log[log.len().saturating_sub(2000)..]);
    }

    /// The member that reports itself as leader.
    fn leader(&self) -> Option<usize> {
        (0..self.size()).find(|member| {
            let status = format!("--endpoints={} endpoint status", self.endpoint(*member));
            let status = self.try_control(&status, Duration::from_secs(1));
            // Endpoint, id, version, size, leads.
            status.is_ok_and(|status| status.split(", ").nth(4) == Some("true"))
        })
    }

    /// Runs etcdctl as root.
    pub(crate) fn control(&self, command: &str) -> String {
        let command = format!("--endpoints={} {command}", self.settings().endpoints);
        self.try_control(&command, Duration::from_secs(10)).unwrap()
    }

    /// Runs etcdctl as root. A member that is down costs all the `patience` for a connection.
    fn try_control(&self, command: &str, patience: Duration) -> Result<String, String> {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl
            .env("ETCDCTL_API", "3")
            .arg("--cacert")
            .arg(self.folder.join("ca.pem"))
            .arg("--cert")
            .arg(self.folder.join("member.pem"))
            .arg("--key")
            .arg(self.folder.join("member.key"));
        etcdctl.args(["--user=root:secret", "--command-timeout=10s"]);
        etcdctl.arg(format!("--dial-timeout={}s", patience.as_secs()));
        let output = etcdctl.args(command.split(' ')).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Starts a member; returns its shell.
    pub(crate) fn run(&self, member: usize) -> Child {
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
        Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .args([&self.folder, &self.process_file(member)])
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The file with the number of a member's process.
    pub(crate) fn process_file(&self, member: usize) -> PathBuf {
        self.folder.join(format!("m{member}.process"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for keeper in self.keepers.get_mut().unwrap() {
            drop(keeper.stdin.take());
        }
        for keeper in self.keepers.get_mut().unwrap() {
            keeper.wait().unwrap();
        }
    }
}

/// Pairs of ports that are free now. No other test of this process gets them, and the kernel gives none of
/// them to a connection while its member is down.
fn free_ports(pairs: usize) -> Vec<(u16, u16)> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Tests of another checkout begin elsewhere.
    let begin = std::process::id().wrapping_mul(97);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| {
        let number = begin.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 10_000) as u16;
        (port, port + 10_000)
    })
    .filter(|(client, peer)| is_free(client) && is_free(peer))
    .take(pairs)
    .collect()
}

/// Makes a CA and a certificate for the members. No other program trusts the CA.
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

pub(crate) fn user(name: &str, password: &str) -> User {
    User {
        name: name.into(),
        password: Secret::new(password),
        password_file: PathBuf::new(),
    }
}
