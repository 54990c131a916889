-- Moves a session to its next state: refuses an illegal move, stamps the time, moves the root sets,
-- counts the session and the time it spent in the state that it leaves, and logs why. Once no node needs the
-- large parts of its capabilities, they go.
-- KEYS[1] session:{session}:status
-- KEYS[2] session:{session}:log
-- KEYS[3] session:{session}:orchestrator
-- KEYS[4] session:{session}:heartbeat.manager
-- KEYS[5] session:{session}:heartbeat.node
-- KEYS[6] sessions.active
-- KEYS[7] sessions.terminated
-- KEYS[8] metrics:sessions:total
-- KEYS[9] metrics:sessions:duration.seconds.total
-- KEYS[10] metrics:sessions:log:{level}
-- KEYS[11] session:{session}:capabilities
-- KEYS[12] remuda:session:{session}:requested.short
-- KEYS[13] remuda:requests.large
-- KEYS[14] remuda:session:{session}:origin
-- KEYS[15] remuda:metering:timer:{timer}
-- KEYS[16] remuda:metering:timers
-- ARGV[1] session
-- ARGV[2] state to move to
-- ARGV[3] origins, legal states to come from, each between commas
-- ARGV[4] now, RFC 3339 with milliseconds in UTC
-- ARGV[5] orchestrator that scheduled the node, when the state is pending
-- ARGV[6] component of the log entry
-- ARGV[7] level
-- ARGV[8] code
-- ARGV[9] meta
-- ARGV[10] keep, about how many log entries stay
-- ARGV[11] bell to ring
-- returns 1 and the state left, or 0 and the state that forbids the move ('' when there is no session)

local function seconds(stamp)
  local year, month, day, hour, minute, second, zone =
    stamp:match('(%d+)-(%d+)-(%d+)[Tt ](%d+):(%d+):([%d.]+)(.*)')
  -- Days since a fixed date: years begin in March, so that the leap day comes last.
  local y, m = tonumber(year), tonumber(month) - 3
  if m < 0 then y, m = y - 1, m + 12 end
  local days = 365 * y + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400)
    + math.floor((153 * m + 2) / 5) + tonumber(day)
  -- Other software writes its zone as an offset: +00:00.
  local sign, hours, minutes = zone:match('([+-])(%d+):(%d+)')
  local offset = sign and tonumber(sign .. '1') * (tonumber(hours) * 60 + tonumber(minutes)) or 0
  return ((days * 24 + tonumber(hour)) * 60 + tonumber(minute) - offset) * 60 + tonumber(second)
end

-- The time between these two states is metered: in this step, so that it is not lost, whatever is killed.
local function set_timer(field, stamp)
  local moment = string.format('%.0f', (seconds(stamp) - seconds('1970-01-01T00:00:00Z')) * 1000)
  redis.call('HSET', KEYS[15], 'service', 'grid', 'account', redis.call('HGET', KEYS[14], 'account') or '',
    field, moment)
  redis.call('ZADD', KEYS[16], moment, ARGV[1])
end

local from, since
for _, state in ipairs({'terminated', 'alive', 'pending', 'queued'}) do
  since = redis.call('HGET', KEYS[1], state .. 'At')
  if since then
    from = state
    break
  end
end
if from == 'terminated' and ARGV[2] == from and redis.call('HEXISTS', KEYS[15], 'began') == 1
  and redis.call('HEXISTS', KEYS[15], 'ended') == 0 then
  -- Other software has ended it, and knows no timer.
  set_timer('ended', since)
end
if not from or not ARGV[3]:find(',' .. from .. ',', 1, true) then
  return {0, from or ''}
end

if ARGV[2] == 'alive' or ARGV[2] == 'terminated' then
  -- Before all other writes: a script whose first write takes no memory may go on in a Redis that is full, so
  -- that sessions end there too.
  local short = redis.call('GETDEL', KEYS[12])
  redis.call('HDEL', KEYS[13], ARGV[1])
  if short then
    redis.call('HSET', KEYS[11], 'requested', short)
  end
end

-- The clocks of two machines differ; a life must not run backwards.
local now = ARGV[4]
if seconds(now) < seconds(since) then now = since end
redis.call('HSET', KEYS[1], ARGV[2] .. 'At', now)
redis.call('HINCRBY', KEYS[8], ARGV[2], 1)
redis.call('HINCRBYFLOAT', KEYS[9], from, string.format('%.3f', seconds(now) - seconds(since)))
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[10], '*',
  'component', ARGV[6], 'level', ARGV[7], 'code', ARGV[8], 'meta', ARGV[9])
redis.call('HINCRBY', KEYS[10], ARGV[8], 1)

if ARGV[2] == 'pending' then
  redis.call('RPUSH', KEYS[3], ARGV[5])
elseif ARGV[2] == 'alive' then
  redis.call('EXPIRE', KEYS[4], 1)
  set_timer('began', now)
elseif ARGV[2] == 'terminated' then
  if from == 'alive' then
    set_timer('began', since)
    set_timer('ended', now)
  end
  redis.call('SMOVE', KEYS[6], KEYS[7], ARGV[1])
  redis.call('EXPIRE', KEYS[4], 1)
  redis.call('EXPIRE', KEYS[5], 1)
end
redis.call('PUBLISH', ARGV[11], ARGV[2])
return {1, from}
