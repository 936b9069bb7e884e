//! A stand-in for the node: relays connections to the lake as they are.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::config::Config;

/// A running node.
pub struct Gateway {
    s3: SocketAddr,
    admin: TcpListener,
    task: JoinHandle<()>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct GatewayError {
    address: SocketAddr,
    source: io::Error,
}

impl Gateway {
    /// Binds the listeners and relays.
    pub async fn start(config: Config) -> Result<Self, GatewayError> {
        let s3 = bind(config.s3.listen).await?;
        let admin = bind(config.admin.listen).await?;
        let address = s3.local_addr().expect("a bound listener has an address");
        let lake = config.lake.endpoint.trim_start_matches("http://").to_string();
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = s3.accept().await {
                let lake = lake.clone();
                tokio::spawn(async move {
                    if let Ok(mut lake) = TcpStream::connect(lake).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut lake).await;
                    }
                });
            }
        });
        Ok(Self {
            s3: address,
            admin,
            task,
        })
    }

    /// Where clients connect.
    pub fn s3_address(&self) -> SocketAddr {
        self.s3
    }

    /// Where operators look.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.local_addr().expect("a bound listener has an address")
    }

    /// Stops.
    pub async fn shutdown(self) {
        self.task.abort();
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, GatewayError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| GatewayError { address, source })
}
