//! Determines the client of a question: the one that a trusted resolver names, or else the sender.

use std::net::IpAddr;

use hickory_proto::rr::rdata::opt::ClientSubnet;
use ipnet::IpNet;

/// The client on whose behalf a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The client's address or network.
    pub network: IpNet,
    /// True if a resolver named it (EDNS Client Subnet, RFC 7871). The answer then states the clients for
    /// which it is valid.
    pub from_option: bool,
}

/// A Client Subnet option that RFC 7871, section 6, does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    /// The question has a scope, which only an answer may have.
    #[error("a question has a scope")]
    Scope,
    /// The prefix is longer than an address.
    #[error("the prefix is longer than the address")]
    Prefix,
    /// The address has nonzero bits beyond the prefix.
    #[error("the address has bits beyond its prefix")]
    Address,
}

impl Client {
    /// Determines the client of a question from `source`.
    ///
    /// Any sender can claim any client, so the option is honoured only from `trusted` resolvers. A prefix of
    /// length 0 means that the client does not want to be identified; then the resolver's own address is used
    /// (RFC 7871, section 7.1.2).
    ///
    /// # Errors
    ///
    /// Fails if `option` has a scope, or a prefix that does not fit its address.
    pub fn new(source: IpAddr, option: Option<ClientSubnet>, trusted: &[IpNet]) -> Result<Self, SubnetError> {
        let source = source.to_canonical();
        let named = option.map(network).transpose()?;
        let is_trusted = trusted.iter().any(|network| network.contains(&source));
        Ok(match named {
            Some(network) if is_trusted && network.prefix_len() > 0 => Self {
                network,
                from_option: true,
            },
            _ => Self {
                network: source.into(),
                from_option: false,
            },
        })
    }

    /// A number that identifies the client. If two clients have the same number, they merely use the same
    /// node.
    pub fn key(&self) -> u64 {
        let bits = match self.network.network() {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address),
        };
        (bits >> 64) as u64 ^ (bits as u64).rotate_left(17)
    }
}

fn network(option: ClientSubnet) -> Result<IpNet, SubnetError> {
    if option.scope_prefix() != 0 {
        return Err(SubnetError::Scope);
    }
    let network = IpNet::new(option.addr(), option.source_prefix()).map_err(|_| SubnetError::Prefix)?;
    if network.trunc() == network {
        Ok(network)
    } else {
        Err(SubnetError::Address)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;

    use hickory_proto::rr::rdata::opt::ClientSubnet;
    use ipnet::IpNet;

    use super::{Client, SubnetError};

    const RESOLVER: &str = "10.0.0.53";

    fn client(source: &str, address: &str, prefix: u8, scope: u8) -> Result<(String, bool), SubnetError> {
        let trusted: [IpNet; 2] = ["10.0.0.53/32".parse().unwrap(), "fd00::/64".parse().unwrap()];
        let option = ClientSubnet::new(address.parse().unwrap(), prefix, scope);
        let client = Client::new(source.parse().unwrap(), Some(option), &trusted)?;
        Ok((client.network.to_string(), client.from_option))
    }

    #[test]
    fn only_a_trusted_resolver_may_ask_for_a_client() {
        let cases = [
            (RESOLVER, "10.1.2.0", 24, "10.1.2.0/24", true),
            ("::ffff:10.0.0.53", "10.1.2.0", 24, "10.1.2.0/24", true),
            ("fd00::53", "fd00:1::", 56, "fd00:1::/56", true),
            (RESOLVER, "0.0.0.0", 0, "10.0.0.53/32", false),
            ("10.9.9.9", "10.1.2.0", 24, "10.9.9.9/32", false),
            ("::ffff:10.9.9.9", "10.1.2.0", 24, "10.9.9.9/32", false),
        ];
        for (source, address, prefix, network, from_option) in cases {
            let expected = Ok((network.to_string(), from_option));
            assert_eq!(
                client(source, address, prefix, 0),
                expected,
                "{source} for {address}/{prefix}"
            );
        }
    }

    #[test]
    fn an_option_that_the_standard_does_not_allow_is_refused_from_anyone() {
        for source in [RESOLVER, "10.9.9.9"] {
            assert_eq!(client(source, "10.1.2.0", 24, 24), Err(SubnetError::Scope));
            assert_eq!(client(source, "10.1.2.0", 33, 0), Err(SubnetError::Prefix));
            assert_eq!(client(source, "10.1.2.3", 24, 0), Err(SubnetError::Address));
        }
    }

    #[test]
    fn neighbours_have_keys_of_their_own() {
        let key = |address: IpAddr| {
            Client::new(address, None, &[])
                .map(|client| client.key())
                .expect("no option, no error")
        };
        let v4 = (0..=u16::MAX).map(|host| key(IpAddr::from([10, 1, (host >> 8) as u8, host as u8])));
        assert_eq!(v4.collect::<HashSet<_>>().len(), 1 << 16);
        let v6 = (0..1000_u16).map(|host| key(IpAddr::from([0xfd00, 1, 0, 0, 0, 0, 0, host])));
        assert_eq!(v6.collect::<HashSet<_>>().len(), 1000);
    }
}
