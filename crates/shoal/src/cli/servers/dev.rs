//! `shoal dev`: a lake and some nodes on this machine, to try things out.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::future::join_all;
use serde_json::{Value as Json, json};
use shoal_base::secret::Secret;
use shoal_embedded_lake::{ACCESS_KEY, BUCKET, EmbeddedLake, SECRET_KEY};
use shoal_node::Gateway;
use shoal_node::config::{
    Config, ConfigError, CooperationConfig, CooperationMode, FILE_VARIABLE, HintRule, Identity, Log,
    Provenance, RegistryConfig, Role, Sources, TierConfig, TierStoreConfig, WriteMode, WriteRule,
};
use shoal_store::StoreConfig;
use tempfile::TempDir;

use super::signals::Signals;
use super::{descriptors, logging};
use crate::cli::block_on;
use crate::cli::failure::{Failure, print_warnings};
use crate::cli::output::print;

/// The log filter of an interactive session. The lake's library logs every client mistake as an error, and at
/// exit the nodes of this process report each other as gone.
const QUIET: &str = "warn,s3s=off,s3s_fs=off,shoal_net::membership=error";

/// Capacity of the tier in bytes.
const TIER_BYTES: u64 = 1 << 30;

/// Run a lake and some nodes that share what they read, in one process, on loopback.
///
/// Node i listens on port + i. The command prints a line `ready` once all nodes serve; Ctrl-C stops it.
/// The nodes acknowledge writes below `s3://demo/back/` before the embedded lake has them.
/// Variables such as `SHOAL_STORE_CAPACITY` or `SHOAL_FRESHNESS_DEFAULT` apply to every node; configuration
/// files are not read.
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// S3 port of node 0; 0 takes any free port for each node
    #[arg(long, value_name = "PORT", default_value_t = 9000)]
    s3_port: u16,
    /// Admin port of node 0; 0 takes any free port for each node
    #[arg(long, value_name = "PORT", default_value_t = 9100)]
    admin_port: u16,
    /// Port between nodes of node 0; 0 takes any free port for each node
    #[arg(long, value_name = "PORT", default_value_t = 9200)]
    peer_port: u16,
    /// Port of the embedded lake; 0 takes any free port
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    lake_port: u16,
    /// Keep the lake in DIR/lake, the blocks of node i in DIR/node-i, and in DIR/tier what the lake does not
    /// have yet; without it a temporary folder is removed at exit
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Extend this S3 store instead of an embedded lake, with `SHOAL_LAKE_ACCESS_KEY` and
    /// `SHOAL_LAKE_SECRET_KEY` or the account that the AWS chain finds; it has every write that is
    /// acknowledged
    #[arg(long, value_name = "URL")]
    lake: Option<String>,
    /// How the nodes find blocks: hierarchy (the default) or directory
    #[arg(long, value_name = "MODE")]
    cooperation: Option<String>,
    /// Print endpoints and credentials as one line of JSON instead of text and `ready`
    #[arg(long)]
    json: bool,
}

impl Dev {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.check_ports()?;
        let base = self.base_config()?;
        logging::start(&base.log);
        descriptors::raise(&base.limits);
        block_on(self.serve(base))
    }

    async fn serve(self, base: Config) -> Result<(), Failure> {
        let mut stop = Signals::listen()?;
        let named = self.dir.as_deref();
        let (folder, temporary) = open_folder(named).map_err(|error| {
            let name = named.map_or("a temporary folder".into(), Path::to_string_lossy);
            Failure::new(&format!("{name} cannot be used"), &error)
        })?;
        let running = tokio::select! {
            started = self.start(base, &folder) => started?,
            () = stop.stop_with_terminal() => return Ok(()),
        };
        print(&if self.json {
            running.to_json(&folder)
        } else {
            running.to_text(&folder, temporary.is_some())
        });
        stop.stop_with_terminal().await;
        stop.or_give_up(running.shutdown()).await
    }

    /// Starts the lake, then the nodes that extend it.
    async fn start(&self, base: Config, folder: &Path) -> Result<Running, Failure> {
        let lake = if self.lake.is_some() {
            None
        } else {
            let started = EmbeddedLake::start(&folder.join("lake"), loopback(self.lake_port)).await;
            Some(started.map_err(|error| Failure::new("the embedded lake cannot start", &error))?)
        };
        let endpoint = lake.as_ref().map_or(base.lake.endpoint.clone(), |lake| {
            format!("http://{}", lake.address())
        });
        let mut nodes: Vec<Gateway> = Vec::new();
        for index in 0..self.nodes {
            let mut config = self.node_config(&base, &endpoint, index, folder);
            let seed = nodes.first().and_then(Gateway::peer_address);
            config.cooperation.seeds = seed.iter().map(ToString::to_string).collect();
            let name = config.node.name.clone();
            let node = Gateway::start(config).await;
            nodes.push(node.map_err(|error| Failure::new(&format!("{name} cannot start"), &*error))?);
        }
        join_all(nodes.iter().map(|node| node.sees_others(self.nodes.into()))).await;
        Ok(Running {
            lake,
            endpoint,
            nodes,
        })
    }

    /// Returns the configuration that all nodes share: defaults for a developer's machine, and the
    /// environment variables.
    fn base_config(&self) -> Result<Config, ConfigError> {
        let desk = Config {
            store: StoreConfig {
                capacity_bytes: 4 << 30,
                ..StoreConfig::default()
            },
            cooperation: CooperationConfig {
                mode: CooperationMode::Hierarchy,
                ..CooperationConfig::default()
            },
            log: Log {
                filter: QUIET.into(),
                ..Log::default()
            },
            ..Config::default()
        };
        let mut sources = Sources {
            role: Role::Dev,
            ..Sources::of_process()
        };
        sources.variables.retain(|(name, _)| name != FILE_VARIABLE);
        // Settings that flags of `dev` determine are validated with the values of node 0.
        let node_0 = [
            ("s3-listen", self.s3_port),
            ("admin-listen", self.admin_port),
            ("cooperation-listen", self.peer_port),
        ];
        let ports = node_0.map(|(flag, port)| (flag, loopback(port).to_string()));
        let lake = self.lake.clone().map(|url| ("lake-endpoint", url));
        let mode = self.cooperation.clone().map(|mode| ("cooperation-mode", mode));
        let flags = ports.into_iter().chain(lake).chain(mode);
        sources
            .flags
            .extend(flags.map(|(flag, value)| (flag.into(), value)));
        let loaded = Config::load_over(desk, &sources).map_err(in_the_words_of_dev)?;
        print_warnings(&loaded.warnings);
        Ok(loaded.config)
    }

    fn node_config(&self, base: &Config, endpoint: &str, index: u16, folder: &Path) -> Config {
        let mut config = base.clone();
        config.node.name = format!("node-{index}");
        config.node.topology = format!("dc1/cluster-a/rack-{index}");
        let listen = |first| loopback(port(first, index).expect("ports have been checked"));
        config.s3.listen = listen(self.s3_port);
        config.cooperation.listen = listen(self.peer_port);
        config.cooperation.advertise = None;
        config.admin.listen = listen(self.admin_port);
        (config.s3.tls_cert, config.s3.tls_key) = (None, None);
        config.store.path = folder.join(&config.node.name);
        config.lake.endpoint = endpoint.into();
        if self.lake.is_none() {
            config.lake.access_key = Some(ACCESS_KEY.into());
            config.lake.secret_key = Some(Secret::new(SECRET_KEY));
            // Only with the embedded lake: a temporary folder must not hold objects that the user's own lake
            // lacks.
            config.tiers = vec![tier(&folder.join("tier"))];
            config.write.rules = vec![WriteRule::new(back_prefix(), WriteMode::Back)];
        }
        config.identities = vec![Identity::new(ACCESS_KEY, SECRET_KEY)];
        if config.hints.rules.is_empty() {
            config.hints.rules = vec![HintRule::for_all()];
        }
        config
    }

    /// Rejects ports that are out of range, duplicate or in use, before anything starts.
    fn check_ports(&self) -> Result<(), Failure> {
        let mut users = HashMap::new();
        for (flag, user, port) in self.ports() {
            let Some(port) = port else {
                let what = format!("{flag}: no port is left for the {user}: ports end at 65535");
                let hint = format!("choose a lower {flag}, or fewer --nodes");
                return Err(Failure::misused(what, hint));
            };
            if port == 0 {
                continue;
            }
            if let Some(other) = users.insert(port, user.clone()) {
                let what = format!("{flag}: both the {user} and the {other} would use port {port}");
                let hint = format!("choose another {flag}, or fewer --nodes");
                return Err(Failure::misused(what, hint));
            }
            if let Err(error) = TcpListener::bind(loopback(port)) {
                let what = format!("port {port} is not free for the {user}: {error}");
                let hint = format!("choose another with {flag}; `ss -ltnp` names the process that has it");
                return Err(Failure::failed(what).hinting(hint));
            }
        }
        Ok(())
    }

    /// Returns every port to listen on: its flag, its purpose, and its number unless that is out of range.
    fn ports(&self) -> impl Iterator<Item = (&'static str, String, Option<u16>)> {
        let lake = ("--lake-port", "lake".to_owned(), Some(self.lake_port));
        let listeners = [
            ("--s3-port", self.s3_port, "S3"),
            ("--admin-port", self.admin_port, "admin"),
            ("--peer-port", self.peer_port, "peer"),
        ];
        let of_nodes = listeners.into_iter().flat_map(|(flag, first, listener)| {
            (0..self.nodes).map(move |index| {
                let user = format!("{listener} listener of node-{index}");
                (flag, user, port(first, index))
            })
        });
        self.lake.is_none().then_some(lake).into_iter().chain(of_nodes)
    }
}

/// Replaces flags of `serve` in an error with the flags of `dev` that set them.
fn in_the_words_of_dev(mut error: ConfigError) -> ConfigError {
    let flags = error
        .problems
        .iter_mut()
        .filter_map(|problem| match &mut problem.provenance {
            Provenance::Flag(flag) => Some(flag),
            _ => None,
        });
    for flag in flags {
        match flag.as_str() {
            "--lake-endpoint" => *flag = "--lake".into(),
            "--cooperation-mode" => *flag = "--cooperation".into(),
            _ => {}
        }
    }
    error
}

/// Returns port `first + index`; 0 means any free port and stays 0.
fn port(first: u16, index: u16) -> Option<u16> {
    match first {
        0 => Some(0),
        first => first.checked_add(index),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns the tier that all nodes share.
fn tier(folder: &Path) -> TierConfig {
    TierConfig {
        name: "dev".into(),
        store: TierStoreConfig::Folder(folder.into()),
        capacity_bytes: TIER_BYTES,
        registry: RegistryConfig::within(folder),
        inline_bytes: TierConfig::INLINE_BYTES,
        receipts: false,
    }
}

/// Returns the prefix of written-back objects.
fn back_prefix() -> String {
    format!("s3://{BUCKET}/back/")
}

/// Opens the folder of the lake and the nodes; a temporary one is removed at exit.
fn open_folder(kept: Option<&Path>) -> io::Result<(PathBuf, Option<TempDir>)> {
    if let Some(path) = kept {
        std::fs::create_dir_all(path)?;
        return Ok((path.canonicalize()?, None));
    }
    let temporary = tempfile::Builder::new().prefix("shoal-dev-").tempdir()?;
    Ok((temporary.path().into(), Some(temporary)))
}

/// The running lake and nodes.
struct Running {
    lake: Option<EmbeddedLake>,
    endpoint: String,
    nodes: Vec<Gateway>,
}

impl Running {
    fn to_text(&self, folder: &Path, is_removed: bool) -> String {
        let nodes = self.nodes.iter().enumerate().map(|(index, node)| {
            let (s3, admin) = (node.s3_address(), node.admin_address());
            format!("  node-{index:<3} http://{s3}   admin http://{admin}\n")
        });
        let back = self.lake.as_ref().map(|_| {
            let prefix = back_prefix();
            format!("  back     {prefix} (acknowledged before the lake has it)\n")
        });
        format!(
            "Shoal for development\n\n{}  lake     {}\n  folder   {}{}\n{}\n  \
             access key {ACCESS_KEY}   secret key {SECRET_KEY}\n\n  {}\n\nready\n",
            nodes.collect::<String>(),
            self.endpoint,
            folder.display(),
            if is_removed { " (removed at exit)" } else { "" },
            back.unwrap_or_default(),
            self.try_it(),
        )
    }

    /// Returns a command that can be pasted into a shell.
    fn try_it(&self) -> String {
        let bucket = self.lake.as_ref().map(|_| format!(" s3://{BUCKET}"));
        let bucket = bucket.unwrap_or_default();
        format!(
            "AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRET_KEY} AWS_DEFAULT_REGION=us-east-1 \
             aws --endpoint-url http://{} s3 ls{bucket}",
            self.nodes[0].s3_address()
        )
    }

    fn to_json(&self, folder: &Path) -> String {
        let node = |(index, node): (usize, &Gateway)| {
            json!({
                "name": format!("node-{index}"),
                "s3": format!("http://{}", node.s3_address()),
                "admin": format!("http://{}", node.admin_address()),
            })
        };
        let document = json!({
            "nodes": self.nodes.iter().enumerate().map(node).collect::<Vec<Json>>(),
            "lake": self.endpoint,
            "bucket": self.lake.as_ref().map(|_| BUCKET),
            "back": self.lake.as_ref().map(|_| back_prefix()),
            "folder": folder,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
        });
        format!("{document}\n")
    }

    /// Stops the nodes first, because their requests in flight may need the lake.
    async fn shutdown(self) {
        join_all(self.nodes.into_iter().map(Gateway::shutdown)).await;
        if let Some(lake) = self.lake {
            lake.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::ExitCode;

    use shoal_node::config::{Config, TierStoreConfig};

    use super::Dev;

    fn dev(nodes: u16, s3_port: u16, admin_port: u16, lake_port: u16) -> Dev {
        Dev {
            nodes,
            s3_port,
            admin_port,
            peer_port: 0,
            lake_port,
            dir: None,
            lake: None,
            cooperation: None,
            json: false,
        }
    }

    fn refused(dev: &Dev) -> String {
        let failure = dev.check_ports().unwrap_err();
        assert_eq!(failure.exit_code(), ExitCode::from(2));
        failure.message().0.to_owned()
    }

    #[test]
    fn node_i_listens_on_port_plus_i_and_stores_in_node_i() {
        let dev = dev(3, 9000, 9100, 9090);
        let config = dev.node_config(&Config::default(), "http://127.0.0.1:9090", 2, Path::new("/d"));
        assert_eq!(
            (config.s3.listen.port(), config.admin.listen.port()),
            (9002, 9102)
        );
        assert_eq!(
            (config.node.name.as_str(), config.store.path.as_path()),
            ("node-2", Path::new("/d/node-2"))
        );
        assert!(config.s3.listen.ip().is_loopback(), "the credentials are public");
    }

    #[test]
    fn nodes_write_back_only_in_front_of_a_lake_of_their_own() {
        let mut dev = dev(2, 0, 0, 0);
        let config = |dev: &Dev, index| {
            dev.node_config(
                &Config::default(),
                "http://127.0.0.1:9090",
                index,
                Path::new("/d"),
            )
        };
        let [one, other] = [0, 1].map(|index| config(&dev, index));
        assert_eq!(one.tiers, other.tiers);
        assert_eq!(
            one.tiers[0].store,
            TierStoreConfig::Folder("/d/tier".into()),
            "nodes of one process share a folder"
        );
        assert_eq!(one.write.rules[0].prefix, "s3://demo/back/");
        assert_eq!(one.write.rules[0].tier_in(&one.tier_names()), Some(0));
        dev.lake = Some("http://127.0.0.1:9090".into());
        let config = config(&dev, 0);
        assert!(config.tiers.is_empty() && config.write.rules.is_empty());
    }

    #[test]
    fn ports_that_do_not_exist_or_collide_are_refused() {
        let past_the_end = refused(&dev(3, 65534, 0, 0));
        assert_eq!(
            past_the_end,
            "--s3-port: no port is left for the S3 listener of node-2: ports end at 65535"
        );
        let collision = refused(&dev(2, 0, 19101, 19102));
        assert_eq!(
            collision,
            "--admin-port: both the admin listener of node-1 and the lake would use port 19102"
        );
    }

    #[test]
    fn a_taken_port_is_told_by_number_and_flag() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = holder.local_addr().unwrap().port();
        let failure = dev(1, port, 0, 0).check_ports().unwrap_err();
        let (what, hint) = failure.message();
        assert!(what.starts_with(&format!(
            "port {port} is not free for the S3 listener of node-0: Address already in use"
        )));
        assert!(hint.contains("--s3-port"));
    }

    #[test]
    fn a_lake_of_ones_own_needs_no_port() {
        let mut dev = dev(1, 0, 0, 0);
        dev.lake = Some("http://lake".into());
        assert!(dev.ports().all(|(flag, ..)| flag != "--lake-port"));
    }

    #[test]
    fn a_lake_may_be_where_a_node_would_be_by_default_but_not_where_it_is() {
        let mut dev = dev(1, 19200, 19201, 0);
        dev.lake = Some("http://127.0.0.1:9000".into());
        assert!(dev.base_config().is_ok());
        dev.lake = Some("http://127.0.0.1:19200".into());
        let refused = dev.base_config().unwrap_err().to_string();
        assert_eq!(
            refused,
            "--lake: [lake] endpoint is an address of this node itself"
        );
    }

    #[test]
    fn any_free_port_can_be_asked_for() {
        assert!(dev(64, 0, 0, 0).check_ports().is_ok());
    }
}
