//! The address of Redis, and the credentials of a node.

use std::sync::Arc;

use redis::cluster::ClusterClientBuilder;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsMode};
use rustls::RootCertStore;
use shoal_base::tls::{self, FileError};
use tokio_rustls::TlsConnector;

use super::link::Connector;
use super::node::{self, PATIENCE};
use super::sentinel::Sentinels;
use crate::config::DirectoryConfig;

/// Why the settings are invalid. No message contains a password.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The URL is not a Redis URL.
    #[error(
        "`{0}` is not a URL of Redis\nhint: write redis://HOST:PORT, redis-cluster://HOST:PORT,... or redis-sentinel://HOST:PORT,.../NAME, with rediss for TLS"
    )]
    Url(String),
    /// The URL holds a password.
    #[error(
        "the URL of Redis holds a password\nhint: write it into a file, and the path of that as password_file"
    )]
    Password,
    /// The URL holds a user, and there is no password.
    #[error("the user of Redis has no password\nhint: write password_file as well")]
    NoPassword,
    /// A certificate file is given for a connection without TLS.
    #[error("ca_file is of no use without TLS\nhint: write rediss in place of redis, or leave ca_file out")]
    NoTls,
    /// The certificates cannot be read.
    #[error("the certificates for Redis, {0}")]
    Certificates(#[from] FileError),
    /// The client cannot be created.
    #[error("the connection to Redis cannot be set up: {0}")]
    Client(#[from] RedisError),
}

/// The servers that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Servers {
    Single(Host),
    Cluster(Vec<Host>),
    /// The Sentinels, and the name of the master that they watch.
    Sentinel(Vec<Host>, String),
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    servers: Servers,
    user: Option<String>,
    is_tls: bool,
}

type Host = (String, u16);

impl DirectoryConfig {
    /// Checks the settings of Redis.
    ///
    /// # Errors
    ///
    /// Fails if the URL is invalid, or a certificate file is set for a connection without TLS.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.is_embedded() {
            return Ok(());
        }
        let address = parse(&self.url)?;
        if self.ca_file.is_some() && !address.is_tls {
            return Err(SettingsError::NoTls);
        }
        if address.user.is_some() && self.password.is_none() {
            return Err(SettingsError::NoPassword);
        }
        Ok(())
    }

    /// Creates the connector for the servers. Reads the certificate file.
    pub(super) fn connector(&self) -> Result<Connector, SettingsError> {
        self.check()?;
        let Address {
            servers,
            user,
            is_tls,
        } = parse(&self.url)?;
        let tls = is_tls.then(|| self.tls()).transpose()?;
        match servers {
            Servers::Single(host) => Ok(Connector::Single {
                server: self.info(user.as_deref(), host, is_tls)?,
                tls,
            }),
            Servers::Cluster(hosts) => {
                let hosts = hosts
                    .into_iter()
                    .map(|host| self.info(user.as_deref(), host, is_tls));
                let mut builder = ClusterClientBuilder::new(hosts.collect::<Result<Vec<_>, _>>()?)
                    .connection_timeout(PATIENCE)
                    .response_timeout(PATIENCE)
                    .retries(1);
                if is_tls {
                    builder = builder.tls(TlsMode::Secure);
                }
                node::set_tls_of_cluster(tls);
                Ok(Connector::Cluster(Box::new(builder.build()?)))
            }
            Servers::Sentinel(hosts, name) => {
                let of_sentinel = |host| address(host, is_tls).into_connection_info();
                let hosts = hosts.into_iter().map(of_sentinel).collect::<Result<_, _>>()?;
                let settings = self.clone();
                let master = move |host, port| settings.info(user.as_deref(), (host, port), is_tls);
                Ok(Connector::Sentinel(Sentinels {
                    hosts,
                    name,
                    master: Box::new(master),
                    tls,
                }))
            }
        }
    }

    /// TLS with the certificates that connections trust.
    fn tls(&self) -> Result<TlsConnector, SettingsError> {
        let roots = match tls::roots(self.ca_file.as_deref()) {
            // Without certificates of the system, each server is rejected.
            Err(_) if self.ca_file.is_none() => RootCertStore::empty(),
            roots => roots?,
        };
        Ok(Arc::new(tls::client(roots, None)?).into())
    }

    fn info(&self, user: Option<&str>, host: Host, is_tls: bool) -> Result<ConnectionInfo, RedisError> {
        let mut redis = RedisConnectionInfo::default();
        if let Some(user) = user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password.expose());
        }
        let info = address(host, is_tls).into_connection_info()?;
        Ok(info.set_redis_settings(redis))
    }
}

fn address((host, port): Host, is_tls: bool) -> ConnectionAddr {
    if is_tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Parses a URL.
fn parse(url: &str) -> Result<Address, SettingsError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err(SettingsError::Password),
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, rest),
    };
    let wrong = || SettingsError::Url(url.into());
    if user.as_deref() == Some("") {
        return Err(wrong());
    }
    let (base, kind) = match scheme.split_once('-') {
        Some((base, kind)) => (base, Some(kind)),
        None => (scheme, None),
    };
    let is_tls = match base {
        "redis" => false,
        "rediss" => true,
        _ => return Err(wrong()),
    };
    let hosts = |list: &str, port| -> Result<Vec<Host>, SettingsError> {
        let hosts = list.split(',').map(|host| parse_host(host.trim(), port));
        hosts.collect::<Option<_>>().ok_or_else(wrong)
    };
    let servers = match kind {
        None => {
            let host = parse_host(rest.trim_end_matches('/'), 6379).ok_or_else(wrong)?;
            Servers::Single(host)
        }
        Some("cluster") => Servers::Cluster(hosts(rest.trim_end_matches('/'), 6379)?),
        Some("sentinel") => {
            let (list, name) = rest.split_once('/').ok_or_else(wrong)?;
            if name.is_empty() || name.contains('/') {
                return Err(wrong());
            }
            Servers::Sentinel(hosts(list, 26379)?, name.into())
        }
        Some(_) => return Err(wrong()),
    };
    Ok(Address {
        servers,
        user,
        is_tls,
    })
}

/// Parses a host with an optional port: a name, an IPv4 address, or an IPv6 address in brackets.
fn parse_host(text: &str, default_port: u16) -> Option<Host> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None if rest.is_empty() => default_port,
        None => return None,
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let is_plain = !host.is_empty() && host.chars().all(is_host);
    is_plain.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use shoal_base::secret::Secret;

    use super::{Address, DirectoryConfig, Servers, SettingsError, parse};

    fn host(name: &str, port: u16) -> (String, u16) {
        (name.into(), port)
    }

    fn settings(url: &str) -> DirectoryConfig {
        DirectoryConfig {
            url: url.into(),
            password: Some(Secret::new("hunter2")),
            ..DirectoryConfig::default()
        }
    }

    #[test]
    fn a_url_names_servers_of_one_kind() {
        let single = |name: &str, port| Servers::Single(host(name, port));
        for (url, expected, is_tls) in [
            ("redis://localhost", single("localhost", 6379), false),
            ("redis://10.0.0.1:7000/", single("10.0.0.1", 7000), false),
            ("rediss://[::1]:7000", single("::1", 7000), true),
            (
                "redis-cluster://a:1,b",
                Servers::Cluster(vec![host("a", 1), host("b", 6379)]),
                false,
            ),
            (
                "rediss-sentinel://a, b:2/main",
                Servers::Sentinel(vec![host("a", 26379), host("b", 2)], "main".into()),
                true,
            ),
        ] {
            let expected = |user: Option<&str>| Address {
                servers: expected.clone(),
                user: user.map(Into::into),
                is_tls,
            };
            assert_eq!(parse(url).unwrap(), expected(None), "{url}");
            let with_user = url.replace("://", "://shoal@");
            assert_eq!(parse(&with_user).unwrap(), expected(Some("shoal")), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "",
            "embedded",
            "localhost:6379",
            "http://a",
            "redis://",
            "redis://a:b",
            "redis://a:",
            "redis://@a",
            "redis://a/1",
            "redis://a b",
            "redis-ring://a",
            "redis-cluster://a,",
            "redis-sentinel://a",
            "redis-sentinel://a/",
            "rediss://::1",
        ] {
            assert!(matches!(parse(url), Err(SettingsError::Url(_))), "{url}");
        }
    }

    #[test]
    fn neither_debug_nor_errors_tell_a_password() {
        assert!(!format!("{:?}", settings("redis://a")).contains("hunter2"));
        for url in ["redis://shoal:hunter2@a", "redis://:hunter2@a", "shoal:hunter2@a"] {
            let error = settings(url).check().unwrap_err();
            assert!(matches!(error, SettingsError::Password));
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_certificate_file_needs_tls_and_must_be_there() {
        let with = |url: &str| DirectoryConfig {
            ca_file: Some("/does/not/exist.pem".into()),
            ..settings(url)
        };
        assert!(matches!(with("redis://a").check(), Err(SettingsError::NoTls)));
        let missing = with("rediss://a").connector();
        assert!(matches!(missing, Err(SettingsError::Certificates { .. })));
    }
}
