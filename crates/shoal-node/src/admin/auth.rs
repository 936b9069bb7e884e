//! Authorizes requests to an admin port. Pages can be read over loopback; everything else needs a token or a
//! certificate if these are configured. If they are not, orders are accepted over loopback only.
//!
//! | request | nothing is configured | tokens or certificates are |
//! |---|---|---|
//! | `/healthz`, `/readyz` | yes | yes |
//! | another page over loopback | yes | yes |
//! | another page from elsewhere | yes | with a token or a certificate |
//! | an order over loopback | yes | with a token or a certificate |
//! | an order from elsewhere | no | with a token or a certificate |
//! | an event of an engine | as an order | as an order, or with a token of `[hints] token_file` |

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use sha2::{Digest as _, Sha256};
use shoal_base::small_file;
use shoal_net::http::pages::{Page, text};
use subtle::ConstantTimeEq as _;

/// Minimum length of a token: shorter ones can be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// Maximum number of tokens in a file: each request is compared with all of them.
const TOKENS_MAX: usize = 64;

/// The effect that a request to the admin port asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Asks if the node is alive and ready.
    Probe,
    /// Reads a page.
    Look,
    /// Changes something.
    Order,
    /// Sends an event of a running job.
    Hint,
}

/// Authorizes requests.
#[derive(Debug, Default)]
pub struct AdminAuth {
    operators: TokenFile,
    /// Programs that may send events and nothing else.
    engines: TokenFile,
    has_client_ca: bool,
}

/// The tokens of a file, if one is configured.
#[derive(Debug, Default)]
struct TokenFile {
    path: Option<PathBuf>,
    tokens: ArcSwap<Tokens>,
}

/// Digests of the tokens, compared in constant time.
#[derive(Debug, Default)]
struct Tokens(Vec<[u8; 32]>);

/// The token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token_file {}: {why}\nhint: write one token a line, such as one made with: openssl rand -hex 32", path.display())]
pub struct TokenError {
    path: PathBuf,
    why: String,
}

impl AdminAuth {
    /// Reads the tokens of operators and those of engines, from the files that are configured. With
    /// `has_client_ca`, connections may present client certificates.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or holds no tokens.
    pub fn open(
        operators: Option<PathBuf>,
        engines: Option<PathBuf>,
        has_client_ca: bool,
    ) -> Result<Arc<Self>, TokenError> {
        Ok(Arc::new(Self {
            operators: TokenFile::open(operators)?,
            engines: TokenFile::open(engines)?,
            has_client_ca,
        }))
    }

    /// Reads the token files again.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does; the old tokens then remain valid.
    pub fn reload(&self) -> Result<(), TokenError> {
        let (operators, engines) = (self.operators.read()?, self.engines.read()?);
        self.operators.tokens.store(Arc::new(operators));
        self.engines.tokens.store(Arc::new(engines));
        Ok(())
    }

    /// Returns a refusal unless a request from `address` with these headers is authorized. It is certified if
    /// its connection has a client certificate signed by `client_ca`.
    pub fn refuse(
        &self,
        address: IpAddr,
        is_certified: bool,
        headers: &HeaderMap,
        wish: Wish,
    ) -> Option<Page> {
        let is_local = address.to_canonical().is_loopback();
        let is_open = match wish {
            Wish::Probe => true,
            Wish::Look => is_local || !self.is_configured(),
            Wish::Order => is_local && !self.is_configured(),
            Wish::Hint => is_local && !self.is_configured() && self.engines.path.is_none(),
        };
        let is_engine = wish == Wish::Hint && self.engines.has_token_of(headers);
        if is_open || is_certified || is_engine || self.operators.has_token_of(headers) {
            return None;
        }
        let asks_for_engines = wish == Wish::Hint && self.engines.path.is_some();
        if !self.is_configured() && !asks_for_engines {
            return Some(text(
                StatusCode::FORBIDDEN,
                "orders are taken over loopback only\nhint: set [admin] token_file, or tls_cert, tls_key and client_ca, and show a token or a certificate; docs/how-to/secure.md shows how\n",
            ));
        }
        let why = if wish == Wish::Hint {
            "this needs a token of [hints] token_file, or of [admin] token_file\nhint: an engine of OpenLineage sends one with auth.type = api_key, as the header authorization: Bearer TOKEN\n"
        } else {
            "this needs a token of [admin] token_file, or a certificate that client_ca has signed\nhint: shoal --token-file FILE, or the header authorization: Bearer TOKEN\n"
        };
        let mut page = text(StatusCode::UNAUTHORIZED, why);
        page.headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Some(page)
    }

    const fn is_configured(&self) -> bool {
        self.operators.path.is_some() || self.has_client_ca
    }
}

impl TokenFile {
    fn open(path: Option<PathBuf>) -> Result<Self, TokenError> {
        let file = Self {
            path,
            tokens: ArcSwap::default(),
        };
        file.tokens.store(Arc::new(file.read()?));
        Ok(file)
    }

    fn read(&self) -> Result<Tokens, TokenError> {
        let tokens = self.path.as_deref().map(Tokens::read).transpose()?;
        Ok(tokens.unwrap_or_default())
    }

    /// Returns true if the request carries one of the tokens.
    fn has_token_of(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else {
            return false;
        };
        let shown = shown.as_bytes().split_at_checked(b"Bearer ".len());
        shown.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && self.tokens.load().has(token.trim_ascii())
        })
    }
}

impl Tokens {
    fn read(path: &Path) -> Result<Self, TokenError> {
        let bad = |why: String| TokenError {
            path: path.into(),
            why,
        };
        let text = small_file::read_text(path).map_err(|error| bad(error.to_string()))?;
        let mut digests = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if token.len() < TOKEN_CHARS_MIN || token.contains(char::is_whitespace) {
                return Err(bad(format!(
                    "line {number} is no token: it has fewer than {TOKEN_CHARS_MIN} characters, or blanks"
                )));
            }
            digests.push(Sha256::digest(token).into());
        }
        match digests.len() {
            0 => Err(bad("it holds no token".into())),
            count if count > TOKENS_MAX => Err(bad(format!("it holds more than {TOKENS_MAX} tokens"))),
            _ => Ok(Self(digests)),
        }
    }

    fn has(&self, token: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let equal = self.0.iter().map(|known| known.ct_eq(&digest));
        // Compares all of them, so that the time does not depend on which one matches.
        equal
            .fold(subtle::Choice::from(0), |any, equal| any | equal)
            .into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LOCAL: &str = "127.0.0.1";
    const REMOTE: &str = "10.0.0.7";

    fn ask(auth: &AdminAuth, address: &str, shown: Option<&str>, wish: Wish) -> Option<StatusCode> {
        let mut headers = HeaderMap::new();
        if let Some(shown) = shown {
            headers.insert(AUTHORIZATION, shown.parse().unwrap());
        }
        let is_certified = shown == Some("a certificate");
        let refusal = auth.refuse(address.parse().unwrap(), is_certified, &headers, wish);
        refusal.map(|page| page.status())
    }

    #[test]
    fn the_table_holds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        fs::write(&file, "# old and new\n0123456789abcdef\n\nfedcba9876543210 \n").unwrap();
        let (open, closed) = (
            AdminAuth::default(),
            AdminAuth::open(Some(file), None, false).unwrap(),
        );
        let certified = AdminAuth::open(None, None, true).unwrap();
        let (token, other) = (Some("Bearer 0123456789abcdef"), Some("bearer fedcba9876543210"));
        let refused = Some(StatusCode::UNAUTHORIZED);
        let table = [
            (&open, LOCAL, None, Wish::Order, None),
            (&open, "::1", None, Wish::Order, None),
            (&open, "::ffff:127.0.0.1", None, Wish::Order, None),
            (&open, REMOTE, None, Wish::Order, Some(StatusCode::FORBIDDEN)),
            (&open, REMOTE, token, Wish::Order, Some(StatusCode::FORBIDDEN)),
            (&open, REMOTE, None, Wish::Look, None),
            (&closed, REMOTE, None, Wish::Probe, None),
            (&closed, LOCAL, None, Wish::Look, None),
            (&closed, REMOTE, None, Wish::Look, refused),
            (&closed, REMOTE, token, Wish::Look, None),
            (&closed, LOCAL, None, Wish::Order, refused),
            (&closed, LOCAL, token, Wish::Order, None),
            (&closed, REMOTE, other, Wish::Order, None),
            (
                &closed,
                REMOTE,
                Some("Bearer 0123456789abcdeX"),
                Wish::Order,
                refused,
            ),
            (&closed, REMOTE, Some("Bearer "), Wish::Order, refused),
            (&closed, REMOTE, Some("Bearer"), Wish::Order, refused),
            (
                &closed,
                REMOTE,
                Some("Basic 0123456789abcdef"),
                Wish::Order,
                refused,
            ),
            (&closed, REMOTE, Some("0123456789abcdef"), Wish::Order, refused),
            (&certified, REMOTE, None, Wish::Look, refused),
            (&certified, LOCAL, None, Wish::Order, refused),
            (&certified, REMOTE, Some("a certificate"), Wish::Order, None),
            (&certified, REMOTE, Some("Bearer "), Wish::Order, refused),
        ];
        for (auth, address, shown, wish, expected) in table {
            assert_eq!(
                ask(auth, address, shown, wish),
                expected,
                "{address} {shown:?} {wish:?} {auth:?}"
            );
        }
    }

    #[test]
    fn a_token_of_an_engine_sends_events_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [operators, engines] = ["operators", "engines"].map(|name| folder.path().join(name));
        fs::write(&operators, "0123456789abcdef\n").unwrap();
        fs::write(&engines, "fedcba9876543210\n").unwrap();
        let (operator, engine) = (Some("Bearer 0123456789abcdef"), Some("Bearer fedcba9876543210"));
        let refused = Some(StatusCode::UNAUTHORIZED);
        let both = AdminAuth::open(Some(operators), Some(engines.clone()), false).unwrap();
        let alone = AdminAuth::open(None, Some(engines), false).unwrap();
        let open = AdminAuth::open(None, None, false).unwrap();
        for (auth, address, shown, wish, expected) in [
            (&both, REMOTE, engine, Wish::Hint, None),
            (&both, REMOTE, operator, Wish::Hint, None),
            (&both, LOCAL, None, Wish::Hint, refused),
            (&both, REMOTE, engine, Wish::Order, refused),
            (&both, REMOTE, engine, Wish::Look, refused),
            (&alone, REMOTE, engine, Wish::Hint, None),
            (&alone, LOCAL, None, Wish::Hint, refused),
            (&alone, LOCAL, None, Wish::Order, None),
            (&alone, REMOTE, engine, Wish::Order, Some(StatusCode::FORBIDDEN)),
            (&open, LOCAL, None, Wish::Hint, None),
            (&open, REMOTE, None, Wish::Hint, Some(StatusCode::FORBIDDEN)),
        ] {
            assert_eq!(
                ask(auth, address, shown, wish),
                expected,
                "{address} {shown:?} {wish:?} {auth:?}"
            );
        }
    }

    #[test]
    fn tokens_change_with_a_reload_and_a_bad_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        fs::write(&file, "0123456789abcdef").unwrap();
        let auth = AdminAuth::open(Some(file.clone()), None, false).unwrap();
        let order = |token: &str| ask(&auth, REMOTE, Some(&format!("Bearer {token}")), Wish::Order);
        for bad in ["", "# none\n", "short\n", "0123456789 abcdef\n"] {
            fs::write(&file, bad).unwrap();
            let error = auth.reload().unwrap_err().to_string();
            assert!(
                error.contains("\nhint: ") && !error.contains("0123456789"),
                "{error}"
            );
            assert_eq!(order("0123456789abcdef"), None);
        }
        fs::write(&file, "fedcba9876543210\n").unwrap();
        auth.reload().unwrap();
        assert_eq!(order("0123456789abcdef"), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(order("fedcba9876543210"), None);
        fs::remove_file(&file).unwrap();
        assert!(auth.reload().is_err() && AdminAuth::open(Some(file), None, false).is_err());
    }
}
