"""What can be asked at /graphql: Selenium Grid 4's schema, as far as its tools ask, and WebGrid's. Pure.

Both call a field `session(id)`, and the two sessions contradict each other: `capabilities` is a text in one
and an object in the other. So there are two schemas that differ in that field alone, and a query is answered
by the one in which it is valid; where both would do, Selenium's goes first, for its tools are out there.
"""

_SDL = '''
"""All that can be asked. Nothing can be changed here."""
type Query {
  """Selenium Grid: the herd in numbers"""
  grid: Grid!
  """Selenium Grid: its nodes, which are our orchestrators"""
  nodesInfo: NodesInfo!
  """Selenium Grid: sessions that hold a slot, and requests that wait for one"""
  sessionsInfo: SessionsInfo!
  """A session; null when there is none of this id"""
  session(id: String!): SESSION
  """WebGrid: sessions with all of this metadata, at most 500; without a state, the active ones come first"""
  sessions(state: SessionState, metadata: [InputDictionaryEntry!]): [Session!]!
  """WebGrid: every orchestrator, alive or not"""
  orchestrators: [Orchestrator!]!
  """WebGrid: an orchestrator; null when there is none of this id"""
  orchestrator(id: String!): Orchestrator
  """WebGrid: how long each step of a session may take"""
  timeouts: Timeouts!
}

type Grid {
  uri: String!
  version: String!
  nodeCount: Int!
  sessionCount: Int!
  sessionQueueSize: Int!
  """How many sessions there can be at a time"""
  maxSession: Int!
  """Slots, counted once for each browser that they can start"""
  totalSlots: Int!
}

type NodesInfo { nodes: [Node!]! }

type Node {
  id: String!
  uri: String!
  """`UP` or `DOWN`"""
  status: String!
  version: String!
  maxSession: Int!
  sessionCount: Int!
  slotCount: Int!
  """JSON: `[{"slots": 4, "stereotype": {...}}]`"""
  stereotypes: String!
  osInfo: OsInfo!
  sessions: [GridSession!]!
}

type OsInfo { arch: String!, name: String!, version: String! }

type SessionsInfo {
  """JSON, one text for each request: the first of its capability sets"""
  sessionQueueRequests: [String!]!
  sessions: [GridSession!]!
}

"""A session in Selenium Grid's words; its times are `31/12/2026 23:59:59` in UTC"""
type GridSession {
  id: String!
  """JSON; what looks secret is masked"""
  capabilities: String!
  startTime: String!
  uri: String!
  nodeId: String!
  nodeUri: String!
  sessionDurationMillis: String!
  slot: GridSlot!
}

type GridSlot {
  id: String!
  """JSON: what the session asked this slot for"""
  stereotype: String!
  lastStarted: String!
}

enum SessionState { Active, Terminated, ACTIVE, TERMINATED }

input InputDictionaryEntry { key: String!, value: String! }

type DictionaryEntry { key: String!, value: String! }

"""A session in WebGrid's words; its times are RFC 3339"""
type Session {
  id: String!
  """`queued`, `pending`, `alive` or `terminated`"""
  state: String!
  """Whether its node beats"""
  alive: Boolean!
  slot: String
  orchestrator: Orchestrator
  storage: String
  videoURL: String
  metadata: [DictionaryEntry!]!
  status: Status!
  capabilities: Capabilities!
  upstream: Upstream!
  downstream: Downstream!
}

type Status { queuedAt: String, pendingAt: String, aliveAt: String, terminatedAt: String }

"""JSON; what looks secret is masked"""
type Capabilities { requested: String, actual: String }

"""always null: addresses inside the herd are not shown"""
type Upstream { host: String, port: Int, driverSessionID: String }

type Downstream { host: String, userAgent: String, lastSeen: String }

type Orchestrator {
  id: String!
  type: String!
  alive: Boolean!
  """Sessions that have a slot and wait for their node to be scheduled"""
  backlog: Int!
  """Sessions whose node is being scheduled"""
  pending: Int!
  slots: Slots!
  capabilities: OrchestratorCapabilities!
}

type Slots { allocated: Int!, available: Int!, reclaimed: Int! }

type OrchestratorCapabilities { platformName: String!, browsers: [Browser!]! }

type Browser { name: String!, version: String! }

"""Seconds"""
type Timeouts {
  queue: Float!
  scheduling: Float!
  nodeStartup: Float!
  driverStartup: Float!
  sessionTermination: Float!
  slotReclaimInterval: Float!
}
'''

SELENIUM_SDL = _SDL.replace("SESSION\n", "GridSession\n", 1)
WEBGRID_SDL = _SDL.replace("SESSION\n", "Session\n", 1)
