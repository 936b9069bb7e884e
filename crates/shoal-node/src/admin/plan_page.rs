//! The page of the plan: `/plan`.

use http::{Method, Request, StatusCode, header};
use serde_json::json;
use shoal_s3::operation::Query;

use crate::http::connection::ClientBody;
use crate::http::pages::{Page, not_allowed, page, text};
use crate::plans::{PlanRefusal, PlanView, Plans};

/// The path.
pub const PATH: &str = "/plan";

/// Whether a request for the page gives an order.
pub fn is_order(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::DELETE)
}

/// Answers a request for the page.
pub async fn answer(plans: &Plans, request: Request<ClientBody>) -> Page {
    match *request.method() {
        Method::GET | Method::HEAD => told(StatusCode::OK, plans.get()),
        Method::DELETE => told(StatusCode::OK, plans.stop()),
        Method::POST => {
            let media = request.headers().get(header::CONTENT_TYPE);
            let media = media.and_then(|media| media.to_str().ok()).unwrap_or_default();
            let media = media.split(';').next().unwrap_or_default().trim();
            if !media.eq_ignore_ascii_case("application/json") {
                return text(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "a plan is JSON\nhint: send content-type: application/json\n",
                );
            }
            told(StatusCode::ACCEPTED, post(plans, request).await)
        }
        _ => not_allowed(
            "only GET, HEAD, POST and DELETE are understood here\n",
            "GET, HEAD, POST, DELETE",
        ),
    }
}

/// Takes a plan. The identity in whose name it is carried out is in the query.
async fn post(plans: &Plans, request: Request<ClientBody>) -> Result<PlanView, PlanRefusal> {
    let query = Query::parse(request.uri().query());
    let query = query.map_err(|error| PlanRefusal::Query(error.message.to_string()))?;
    if let Some((unknown, _)) = query.iter().find(|(name, _)| *name != "identity") {
        return Err(PlanRefusal::Query(format!("unknown parameter {unknown:?}")));
    }
    let identity = query.get("identity").map(str::to_owned);
    plans.post(request.into_body(), identity.as_deref()).await
}

fn told(status: StatusCode, said: Result<PlanView, PlanRefusal>) -> Page {
    match said {
        Ok(plan) => page(status, "application/json", json!(plan)),
        Err(refusal) => page(
            refusal.status(),
            "text/plain; charset=utf-8",
            format!("{refusal}\n"),
        ),
    }
}
