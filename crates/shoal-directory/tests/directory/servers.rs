//! Servers of Redis on this machine.
//!
//! A shell stands between the test and each server: it ends the server when the test process ends, however
//! that ends.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shoal_base::clock;
use shoal_base::secret::Secret;
use shoal_directory::Directory;
use shoal_directory::config::DirectoryConfig;
use shoal_directory::redis::Redis;
use shoal_policy::NodeId;
use tempfile::TempDir;

/// The password of the secured server.
pub(crate) const PASSWORD: &str = "correct-horse";

const PATIENCE: Duration = Duration::from_secs(30);

/// The number of ports that are tried for a server.
const PORTS_TRIED: u32 = 10;

/// Runs a server until standard input ends, then removes its folder. Notes the process of the server in a
/// file.
const KEEPER: &str = r#"
home=$1; shift
"$@" > /dev/null 2>&1 &
echo $! > "$home/process"
read -r _
kill -9 $! 2> /dev/null
rm -rf "$home"
rmdir "$(dirname "$home")" 2> /dev/null || true
"#;

/// One server, and the shell that keeps it.
pub(crate) struct Server {
    pub(crate) port: u16,
    home: PathBuf,
    command: Vec<String>,
    keeper: Child,
}

/// The servers of a test.
pub(crate) struct Servers {
    _folder: TempDir,
    pub(crate) all: Vec<Server>,
    pub(crate) settings: DirectoryConfig,
}

impl Server {
    /// Starts a Redis with the arguments that `arguments` returns for a port. If another server got the port
    /// first, the next port is tried.
    fn start(folder: &Path, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            let home = folder.join(port.to_string());
            let mut command = vec!["redis-server".to_owned()];
            command.extend(arguments(port, &home));
            let keeper = keep(&home, &command);
            let server = Self {
                port,
                home,
                command,
                keeper,
            };
            if server.comes_up() {
                return server;
            }
        }
        panic!("none of {PORTS_TRIED} free ports is free for a server");
    }

    /// Starts a Redis with these further settings.
    fn redis(folder: &Path, further: impl Fn(u16) -> Vec<String>) -> Self {
        Self::start(folder, |port, home| {
            let further = further(port);
            let dir = home.to_str().unwrap();
            let mut arguments = words(&["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            arguments.extend(words(&["--dir", dir, "--repl-diskless-sync-delay", "0"]));
            if !further.iter().any(|word| word == "--tls-port") {
                arguments.extend(words(&["--port", &port.to_string()]));
            }
            arguments.extend(further);
            arguments
        })
    }

    /// Waits until the server listens, and returns true; false if its process has ended. A server of another
    /// process that answers on the port does not count.
    fn comes_up(&self) -> bool {
        let process = fs::read_to_string(self.home.join("process")).unwrap();
        let mut sockets = Vec::new();
        until("a server listens or ends", || {
            sockets = sockets_of(process.trim());
            sockets.is_empty() || sockets.iter().any(|socket| listens(socket, self.port))
        });
        !sockets.is_empty()
    }

    fn signal(&self, signal: &str) {
        let process = fs::read_to_string(self.home.join("process")).unwrap();
        let done = Command::new("kill").args([signal, process.trim()]).status();
        assert!(done.unwrap().success());
    }

    /// Ends the server as `kill -9` does.
    pub(crate) fn kill(&self) {
        self.signal("-KILL");
        until("a killed server is gone", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_err()
        });
    }

    /// Starts a killed server again.
    pub(crate) fn start_again(&mut self) {
        end(&mut self.keeper);
        self.keeper = keep(&self.home, &self.command);
        assert!(self.comes_up(), "another server took the port {}", self.port);
    }

    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Asks a server without TLS and users.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let done = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.keeper);
    }
}

impl Servers {
    /// One server.
    pub(crate) fn single() -> Option<Self> {
        let folder = folder()?;
        let server = Server::redis(folder.path(), |_| Vec::new());
        let url = format!("redis://127.0.0.1:{}", server.port);
        Some(Self::new(folder, vec![server], url))
    }

    /// One server with TLS and a user that has only the rights listed in `docs/how-to/directory.md`.
    pub(crate) fn secured() -> Option<Self> {
        let folder = folder()?;
        make_certificates(folder.path());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let acl = format!(
            "user default off\nuser shoal on >{PASSWORD} ~shoal:* +@read +@write +@scripting +time +ping +info +cluster +client +hello\n"
        );
        fs::write(path("acl"), acl).unwrap();
        let further = |port: u16| {
            let (port, certificate, key) = (port.to_string(), path("server.pem"), path("server.key"));
            let (authority, users) = (path("ca.pem"), path("acl"));
            let mut further = words(&["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"]);
            further.extend(words(&["--tls-cert-file", &certificate, "--tls-key-file", &key]));
            further.extend(words(&["--tls-ca-cert-file", &authority, "--aclfile", &users]));
            further
        };
        let server = Server::redis(folder.path(), further);
        let port = server.port;
        let ca_file = folder.path().join("ca.pem");
        let mut servers = Self::new(folder, vec![server], format!("rediss://shoal@127.0.0.1:{port}"));
        servers.settings.ca_file = Some(ca_file);
        servers.settings.password = Some(Secret::new(PASSWORD));
        Some(servers)
    }

    /// Three masters with a replica each.
    pub(crate) fn cluster() -> Option<Self> {
        let folder = folder()?;
        let further = words(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]);
        let further = [further, words(&["--cluster-config-file", "nodes"])].concat();
        // A server of a cluster listens on its port and on the one ten thousand above.
        let servers: Vec<_> = (0..6)
            .map(|_| Server::redis(folder.path(), |_| further.clone()))
            .collect();
        let address = |server: &Server| format!("127.0.0.1:{}", server.port);
        let addresses: Vec<_> = servers.iter().map(address).collect();
        until("the cluster is made", || {
            let done = Command::new("redis-cli")
                .args(["--cluster", "create"])
                .args(&addresses)
                .args(["--cluster-replicas", "1", "--cluster-yes"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            done.unwrap().success()
        });
        until("the cluster is complete", || {
            let is_complete = |server: &Server| {
                let known = server.ask(&["cluster", "nodes"]);
                let replicas = known.matches("slave ").count();
                let follows = !server
                    .ask(&["info", "replication"])
                    .contains("master_link_status:down");
                server.ask(&["cluster", "info"]).contains("cluster_state:ok") && replicas == 3 && follows
            };
            servers.iter().all(is_complete)
        });
        let url = format!("redis-cluster://{}", addresses.join(","));
        Some(Self::new(folder, servers, url))
    }

    /// A master, a replica, and three Sentinels that watch them; in this order.
    pub(crate) fn sentinel() -> Option<Self> {
        let folder = folder()?;
        let master = Server::redis(folder.path(), |_| Vec::new());
        let of = format!("127.0.0.1 {}", master.port);
        let replica = Server::redis(folder.path(), |_| words(&["--replicaof", &of]));
        until("the replica follows", || {
            replica
                .ask(&["info", "replication"])
                .contains("master_link_status:up")
        });
        let mut servers = vec![master, replica];
        for _ in 0..3 {
            let watched = servers[0].port;
            let server = Server::start(folder.path(), |port, _| {
                let file = folder.path().join(format!("sentinel-{port}.conf"));
                let text = format!(
                    "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {watched} 2\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n"
                );
                fs::write(&file, text).unwrap();
                words(&[file.to_str().unwrap(), "--sentinel"])
            });
            servers.push(server);
        }
        until("the Sentinels know each other", || {
            servers[2..].iter().all(|sentinel| {
                let known = sentinel.ask(&["sentinel", "master", "main"]);
                let value = |name: &str| {
                    known
                        .lines()
                        .skip_while(|line| *line != name)
                        .nth(1)
                        .map(str::to_owned)
                };
                value("num-other-sentinels").as_deref() == Some("2")
                    && value("num-slaves").as_deref() == Some("1")
            })
        });
        let hosts: Vec<_> = servers[2..]
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port))
            .collect();
        let url = format!("redis-sentinel://{}/main", hosts.join(","));
        Some(Self::new(folder, servers, url))
    }

    fn new(folder: TempDir, servers: Vec<Server>, url: String) -> Self {
        let settings = DirectoryConfig {
            url,
            ..DirectoryConfig::default()
        };
        Self {
            _folder: folder,
            all: servers,
            settings,
        }
    }
}

/// A directory that has answered.
pub(crate) async fn connected(settings: &DirectoryConfig) -> Redis {
    let redis = Redis::new(settings).unwrap();
    answers(&redis).await;
    redis
}

/// Waits until a directory answers.
pub(crate) async fn answers(directory: &dyn Directory) {
    let began = clock::instant();
    loop {
        match directory.mark(NodeId(0), 15).await {
            Ok(_) => return,
            Err(silent) => assert!(began.elapsed() < PATIENCE, "{silent}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = clock::instant();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it does not come to pass that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn keep(home: &Path, command: &[String]) -> Child {
    fs::create_dir_all(home).unwrap();
    let keeper = Command::new("sh")
        .args(["-c", KEEPER, "keeper"])
        .arg(home)
        .args(command)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let process = home.join("process");
    until("a server starts", || {
        fs::read_to_string(&process).is_ok_and(|process| process.ends_with('\n'))
    });
    keeper
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The inodes of the sockets of a process; its other open files have empty names here. None if the process
/// has ended.
fn sockets_of(process: &str) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let inode = |link: PathBuf| {
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    links.map(|link| inode(link).unwrap_or_default()).collect()
}

/// Returns true if the socket with this inode listens on a port.
fn listens(socket: &str, port: u16) -> bool {
    let (end, listening) = (format!(":{port:04X}"), "0A");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[1].ends_with(&end) && fields[3] == listening && fields[9] == socket
    })
}

fn end(keeper: &mut Child) {
    drop(keeper.stdin.take());
    keeper.wait().unwrap();
}

fn folder() -> Option<TempDir> {
    for program in ["redis-server", "redis-cli", "openssl"] {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        if found.unwrap().stdout.is_empty() {
            return None;
        }
    }
    Some(tempfile::Builder::new().prefix("shoal-redis-").tempdir().unwrap())
}

/// A port that is free now, and the one ten thousand above it as well. No other test of this process gets it.
/// The kernel gives neither to a connection.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Tests of another checkout begin elsewhere.
    let begin = std::process::id().wrapping_mul(97);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let number = begin.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 10_000) as u16;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// A certificate authority, and a certificate of the server at 127.0.0.1.
fn make_certificates(folder: &Path) {
    let script = "
set -e
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=redis -keyout server.key -out server.csr
printf 'subjectAltName=IP:127.0.0.1' > server.ext
openssl x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile server.ext -out server.pem
";
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(done.unwrap().success());
}
