//! Who may ask: pages and programs of this machine, under a name of this machine.
//!
//! A page from elsewhere may make a browser ask loopback addresses, directly or under a name of its own that
//! it points here (DNS rebinding). Browsers tell both in `Origin` and `Host`.

use std::net::IpAddr;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::{Error, error};

/// Refuses requests that come from elsewhere.
pub(crate) async fn same_machine(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    check(text(header::HOST), text(header::ORIGIN)).map_err(error::ErrorForbidden)?;
    next.call(request).await
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Refusal {
    /// The request names another machine.
    #[error("the host is '{0}': expected localhost, 127.0.0.1 or [::1]")]
    Host(String),
    /// The request comes from a page of another server.
    #[error("the origin is '{0}': only this server's own page may ask")]
    Origin(String),
}

fn check(host: Option<&str>, origin: Option<&str>) -> Result<(), Refusal> {
    let host = host.unwrap_or_default();
    if !is_loopback(host) {
        return Err(Refusal::Host(host.to_owned()));
    }
    match origin {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            Err(Refusal::Origin(origin.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Whether `HOST[:PORT]` names this machine. The port may be any: tunnels change it.
fn is_loopback(authority: &str) -> bool {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => authority,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_several_names() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:9000", "[::1]"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in
            ["", "example.org", "127.0.0.1.example.org", "192.168.0.1:80", "localhost.evil:80", "[::2]:1"]
        {
            assert!(check(Some(host), None).is_err(), "{host}");
        }
        assert!(check(None, None).is_err());
    }

    #[test]
    fn only_the_own_page_may_ask() {
        assert_eq!(check(Some("localhost:80"), Some("http://localhost:80")), Ok(()));
        for origin in ["http://localhost:81", "https://localhost:80", "null", "http://example.org", "?"] {
            assert_eq!(check(Some("localhost:80"), Some(origin)), Err(Refusal::Origin(origin.to_owned())));
        }
    }
}
