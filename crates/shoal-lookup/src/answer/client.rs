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

impl Client {
    /// Determines the client of a question from `source`.
    ///
    /// Any sender can claim any client, so the option is honoured only from `trusted` resolvers. A prefix of
    /// length 0 means that the client does not want to be identified; then the resolver's own address is used
    /// (RFC 7871, section 7.1.2).
    ///
    /// Returns `None` for an option that RFC 7871, section 6, does not allow.
    pub fn new(source: IpAddr, option: Option<ClientSubnet>, trusted: &[IpNet]) -> Option<Self> {
        let source = source.to_canonical();
        let named = match option {
            Some(option) => Some(network(option)?),
            None => None,
        };
        let is_trusted = trusted.iter().any(|network| network.contains(&source));
        Some(match named {
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

/// Returns the network of an option without a scope, which only an answer may have, and without bits of the
/// address beyond its prefix.
fn network(option: ClientSubnet) -> Option<IpNet> {
    let network = IpNet::new(option.addr(), option.source_prefix()).ok()?;
    (option.scope_prefix() == 0 && network.trunc() == network).then_some(network)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;

    use hickory_proto::rr::rdata::opt::ClientSubnet;
    use ipnet::IpNet;

    use super::Client;

    const RESOLVER: &str = "10.0.0.53";

    fn client(source: &str, address: &str, prefix: u8, scope: u8) -> Option<(String, bool)> {
        let trusted: [IpNet; 2] = ["10.0.0.53/32".parse().unwrap(), "fd00::/64".parse().unwrap()];
        let option = ClientSubnet::new(address.parse().unwrap(), prefix, scope);
        let client = Client::new(source.parse().unwrap(), Some(option), &trusted)?;
        Some((client.network.to_string(), client.from_option))
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
            let expected = Some((network.to_string(), from_option));
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
            assert_eq!(client(source, "10.1.2.0", 24, 24), None, "it has a scope");
            assert_eq!(
                client(source, "10.1.2.0", 33, 0),
                None,
                "its prefix is longer than an address"
            );
            assert_eq!(
                client(source, "10.1.2.3", 24, 0),
                None,
                "its address has bits beyond the prefix"
            );
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
