//! The pages of tasks: `/tasks` and below it, `/plan`, and `/cached`, which asks the lake as a task does.

use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::Serialize;
use serde_json::json;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::pages::{Page, not_allowed, only_read, page, text};
use shoal_orders::tasks::{
    CACHED_OBJECTS_MAX, CachedQuery, Task, TaskListPart, TaskRefusal, TaskRequest, TaskState, Tasks,
    is_notification,
};
use shoal_s3::operation::Query;
use shoal_s3::uri::S3Uri;

/// The paths of all tasks, of the plan in force, of its spans of time, and of what is cached.
const TASKS: &str = "/tasks";
const PLAN: &str = "/plan";
const TIMELINE: &str = "/plan/timeline";
const CACHED: &str = "/cached";

const JSON: &str = "application/json";

/// The longest order or announcement in bytes; queues pass on 256 KiB at most.
const ORDER_BYTES_MAX: usize = 512 << 10;

/// The number of tasks in one answer, and the largest.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// A page of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskPage {
    /// `/tasks`
    All,
    /// `/tasks/ID`
    One(String),
    /// `/tasks/ID/cancel`
    Cancel(String),
    /// `/plan`
    Plan,
    /// `/plan/timeline`
    Timeline,
    /// `/cached`
    Cached,
}

impl TaskPage {
    /// Returns the page at a path, if it is one of tasks.
    pub fn at(path: &str) -> Option<Self> {
        if path == PLAN {
            return Some(Self::Plan);
        }
        if path == TIMELINE {
            return Some(Self::Timeline);
        }
        if path == CACHED {
            return Some(Self::Cached);
        }
        let below = path.strip_prefix(TASKS)?;
        let mut parts = below.split('/').skip(1);
        match (below, parts.next(), parts.next(), parts.next()) {
            ("", ..) => Some(Self::All),
            (_, Some(id), None, None) if !id.is_empty() => Some(Self::One(id.into())),
            (_, Some(id), Some("cancel"), None) if !id.is_empty() => Some(Self::Cancel(id.into())),
            _ => None,
        }
    }

    /// Returns true if a request for the page gives an order.
    pub fn is_order(&self, method: &Method) -> bool {
        match self {
            Self::All => *method == Method::POST,
            Self::One(_) | Self::Timeline => false,
            // The answer takes requests to the lake, in the name of an identity.
            Self::Cancel(_) | Self::Cached => true,
            Self::Plan => matches!(*method, Method::POST | Method::DELETE),
        }
    }

    /// Answers a request for the page.
    pub async fn answer(self, tasks: &Tasks, request: Request<ClientBody>) -> Page {
        match (self, request.method()) {
            (Self::All, &Method::POST) => match post(tasks, request).await {
                Ok(Some(task)) => json_page(StatusCode::ACCEPTED, &task),
                // A webhook sends again what is refused.
                Ok(None) => page(StatusCode::NO_CONTENT, "text/plain; charset=utf-8", String::new()),
                Err(refusal) => refusal,
            },
            (Self::Cancel(id), &Method::POST) => answered(StatusCode::OK, tasks.cancel(&id)),
            (Self::Cached, &Method::POST) => match cached_of(request.uri().query()) {
                Ok(query) => answered(StatusCode::OK, tasks.cached(&query).await),
                Err(why) => message_page(StatusCode::BAD_REQUEST, &why),
            },
            (Self::Cancel(_) | Self::Cached, _) => not_allowed("only POST is understood here\n", "POST"),
            (Self::All, &Method::GET | &Method::HEAD) => match part_of(request.uri().query()) {
                Ok(part) => answered(StatusCode::OK, tasks.list(&part)),
                Err(why) => message_page(StatusCode::BAD_REQUEST, &why),
            },
            (Self::All, _) => not_allowed("only GET, HEAD and POST are understood here\n", "GET, HEAD, POST"),
            (Self::One(id), method) => match only_read(method) {
                Some(refusal) => refusal,
                None => answered(StatusCode::OK, tasks.get(&id)),
            },
            (Self::Timeline, method) => match (only_read(method), tasks.timeline().await) {
                (Some(refusal), _) => refusal,
                (None, Some(timeline)) => json_page(StatusCode::OK, timeline),
                (None, None) => message_page(StatusCode::NOT_FOUND, "there is no plan in force"),
            },
            (Self::Plan, &Method::GET | &Method::HEAD) => answered(StatusCode::OK, tasks.plan()),
            (Self::Plan, &Method::DELETE) => answered(StatusCode::OK, tasks.stop_plan().await),
            (Self::Plan, &Method::POST) => match media(request.headers()).as_str() {
                JSON => answered(StatusCode::ACCEPTED, post_plan(tasks, request).await),
                _ => text(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "a plan is JSON\nhint: send content-type: application/json\n",
                ),
            },
            (Self::Plan, _) => not_allowed(
                "only GET, HEAD, POST and DELETE are understood here\n",
                "GET, HEAD, POST, DELETE",
            ),
        }
    }
}

/// Takes an order: in JSON, as a list of objects, or as an announcement of S3. The latter two have the rest
/// of the order in the query. `None`: there is nothing to do.
async fn post(tasks: &Tasks, request: Request<ClientBody>) -> Result<Option<Task>, Page> {
    let refused = |refusal: TaskRefusal| refused(&refusal);
    match media(request.headers()).as_str() {
        JSON => {}
        "text/plain" => {
            let order = of_query(request.uri().query()).map_err(refused)?;
            let task = tasks.post_list(order, request.into_body()).await;
            return task.map(Some).map_err(refused);
        }
        _ => {
            return Err(text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "an order is JSON, or a list of URIs\nhint: send content-type: application/json, or text/plain\n",
            ));
        }
    }
    let query = request.uri().query().map(str::to_owned);
    let body = Limited::new(request.into_body(), ORDER_BYTES_MAX).collect().await;
    let body = body.map_err(|_| {
        text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "an order has at most 512 KiB, or did not come in full\n",
        )
    })?;
    let body = body.to_bytes();
    if is_notification(&body) {
        let order = of_query(query.as_deref()).map_err(refused)?;
        return tasks.post_notification(order, &body).await.map_err(refused);
    }
    let task = TaskRequest::of_json(&body).and_then(|order| tasks.post(order));
    task.map(Some).map_err(refused)
}

/// Takes a plan. The identity in whose name it is carried out is in the query.
async fn post_plan(tasks: &Tasks, request: Request<ClientBody>) -> Result<Task, TaskRefusal> {
    let refused = |why: String| {
        TaskRefusal::bad(format!(
            "{why}\nhint: the only parameter is identity, an access key"
        ))
    };
    let query = Query::parse(request.uri().query());
    let query = query.map_err(|error| refused(error.message.to_string()))?;
    if let Some((unknown, _)) = query.iter().find(|(name, _)| *name != "identity") {
        return Err(refused(format!("unknown parameter {unknown:?}")));
    }
    let identity = query.get("identity").map(str::to_owned);
    tasks.post_plan(request.into_body(), identity.as_deref()).await
}

/// Returns the order in a query, which has its fields as parameters.
fn of_query(query: Option<&str>) -> Result<TaskRequest, TaskRefusal> {
    let query = Query::parse(query).map_err(|error| TaskRefusal::no_order(error.message))?;
    let fields = query.iter().map(|(name, value)| {
        let value = match name {
            "rate_bytes_per_second" => value
                .parse::<u64>()
                .map_or_else(|_| json!(value), |rate| json!(rate)),
            "dry_run" => value
                .parse::<bool>()
                .map_or_else(|_| json!(value), |dry| json!(dry)),
            _ => json!(value),
        };
        (name.to_owned(), value)
    });
    let fields: serde_json::Map<_, _> = fields.collect();
    TaskRequest::of_json(json!(fields).to_string().as_bytes())
}

/// Returns the part of the list of tasks that a query asks for, or what is wrong with the query.
fn part_of(query: Option<&str>) -> Result<TaskListPart, String> {
    let query = Query::parse(query).map_err(|error| error.message.to_string())?;
    let state = query.get("state").map(|word| {
        TaskState::of(word).ok_or_else(|| {
            let states = TaskState::ALL.map(TaskState::as_str).join(", ");
            format!("no task is ever {word:?}\nhint: the states are {states}")
        })
    });
    let limit = query.get("limit").map_or(Ok(LIMIT), str::parse::<usize>);
    let limit = limit.ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    Ok(TaskListPart {
        state: state.transpose()?,
        before: query.get("before").map(str::to_owned),
        limit: limit.ok_or_else(|| format!("limit is not a number of tasks\nhint: give 1 to {LIMIT_MAX}"))?,
    })
}

/// Returns the page of objects that a query asks for, or what is wrong with the query.
fn cached_of(query: Option<&str>) -> Result<CachedQuery, String> {
    let query = Query::parse(query).map_err(|error| error.message.to_string())?;
    let known = ["uri", "identity", "after", "limit"];
    if let Some((unknown, _)) = query.iter().find(|(name, _)| !known.contains(name)) {
        return Err(format!(
            "unknown parameter {unknown:?}\nhint: those known are {}",
            known.join(", ")
        ));
    }
    let uri = query.get("uri").unwrap_or_default().parse::<S3Uri>();
    let limit = query
        .get("limit")
        .map_or(Ok(CACHED_OBJECTS_MAX), str::parse::<usize>);
    let limit = limit
        .ok()
        .filter(|limit| (1..=CACHED_OBJECTS_MAX).contains(limit));
    Ok(CachedQuery {
        uri: uri.map_err(|error| {
            format!("uri= does not name objects: {error}\nhint: write s3://bucket/prefix")
        })?,
        identity: query.get("identity").map(str::to_owned),
        after: query.get("after").map(str::to_owned),
        limit: limit.ok_or_else(|| {
            format!("limit is not a number of objects\nhint: give 1 to {CACHED_OBJECTS_MAX}")
        })?,
    })
}

/// Returns the media type of the body of an order, in lower case.
fn media(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.and_then(|given| given.to_str().ok()).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

fn answered(status: StatusCode, answer: Result<impl Serialize, TaskRefusal>) -> Page {
    match answer {
        Ok(said) => json_page(status, &said),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &TaskRefusal) -> Page {
    message_page(refusal.status, &refusal.why)
}

/// Returns a line of text.
pub(super) fn message_page(status: StatusCode, why: &str) -> Page {
    page(status, "text/plain; charset=utf-8", format!("{why}\n"))
}

/// Returns a page of JSON.
pub(super) fn json_page(status: StatusCode, said: impl Serialize) -> Page {
    page(status, JSON, json!(said))
}

#[cfg(test)]
mod tests {
    use super::TaskPage;

    #[test]
    fn the_pages_of_tasks_are_found_by_their_paths() {
        assert_eq!(TaskPage::at("/tasks"), Some(TaskPage::All));
        assert_eq!(TaskPage::at("/tasks/01J"), Some(TaskPage::One("01J".into())));
        assert_eq!(TaskPage::at("/plan"), Some(TaskPage::Plan));
        assert_eq!(TaskPage::at("/plan/timeline"), Some(TaskPage::Timeline));
        assert_eq!(TaskPage::at("/cached"), Some(TaskPage::Cached));
        assert_eq!(
            TaskPage::at("/tasks/01J/cancel"),
            Some(TaskPage::Cancel("01J".into()))
        );
        for path in [
            "/task",
            "/tasksx",
            "/tasks/",
            "/tasks//cancel",
            "/tasks/a/b",
            "/tasks/a/cancel/",
            "/plan/",
            "/cached/",
            "/plans",
            "/",
        ] {
            assert_eq!(TaskPage::at(path), None, "{path}");
        }
    }
}
