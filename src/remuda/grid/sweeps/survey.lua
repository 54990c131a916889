-- Looks at some sessions, each in one moment, and puts those that have a state into the set of that state and
-- into that of their account.
-- KEYS[1] sessions.active
-- KEYS[2] sessions.terminated
-- ARGV[1] status, template by session
-- ARGV[2] heartbeat.manager, template by session
-- ARGV[3] heartbeat.node, template by session
-- ARGV[4] slot, template by session
-- ARGV[5] origin, template by session
-- ARGV[6] sessions, template by account
-- ARGV[7] timer, template by session
-- ARGV[8..] session
-- returns for each session the four stamps in the order of its life (nil: not there), whether its manager
-- and its node beat, its slot, whether it was in the wrong set, and whether its time is metered after its end; or a
-- text: what is wrong with its keys

local function has_open_timer(session)
  local began, ended = unpack(redis.call('HMGET', string.format(ARGV[7], session), 'began', 'ended'))
  return began and not ended
end

local function look_at(session)
  local status = redis.pcall('HMGET', string.format(ARGV[1], session),
    'queuedAt', 'pendingAt', 'aliveAt', 'terminatedAt')
  local slot = redis.pcall('GET', string.format(ARGV[4], session))
  for _, reply in ipairs({status, slot}) do
    if type(reply) == 'table' and reply.err then
      return reply.err
    end
  end
  local queued, pending, alive, terminated = unpack(status)
  local mended = 0
  if terminated then
    mended = redis.call('SREM', KEYS[1], session) + redis.call('SADD', KEYS[2], session)
  elseif queued or pending or alive then
    mended = redis.call('SREM', KEYS[2], session) + redis.call('SADD', KEYS[1], session)
  end
  if queued or pending or alive or terminated then
    local account = redis.pcall('HGET', string.format(ARGV[5], session), 'account')
    if type(account) == 'string' and account ~= '' then
      redis.call('SADD', string.format(ARGV[6], account), session)
    end
  end
  return {
    queued, pending, alive, terminated,
    redis.call('EXISTS', string.format(ARGV[2], session)),
    redis.call('EXISTS', string.format(ARGV[3], session)),
    slot,
    math.min(mended, 1),
    terminated and has_open_timer(session) and 1 or 0,
  }
end

local found = {}
for index = 8, #ARGV do
  found[#found + 1] = look_at(ARGV[index])
end
return found
