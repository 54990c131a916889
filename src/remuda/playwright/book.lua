-- The book of one browser's workers: what the scripts of this room share. A worker's connections change only
-- through `add` and `remove`, and both end by bringing the documented counter and the index in line with them.
-- KEYS[1] cluster:active_connections
-- KEYS[2] cluster:lifetime_connections
-- KEYS[3] remuda:playwright:workers:{browser}
-- KEYS[4] remuda:playwright:versions:{browser}
-- KEYS[5] remuda:playwright:offers:{browser}
-- KEYS[6] remuda:playwright:suspects:{browser}
-- KEYS[7] remuda:playwright:leases:{browser}
-- KEYS[8] remuda:playwright:leaving:{browser}
-- KEYS[9] remuda:playwright:vacant:{browser}
-- KEYS[10] remuda:playwright:totals:{browser}
-- KEYS[11] remuda:playwright:waits:{browser}
-- KEYS[12] remuda:playwright:failures:{browser}
-- KEYS[13] remuda:playwright:origins:{browser}
-- KEYS[14] worker:{browser}:{worker}, a template by worker
-- KEYS[15] worker:cmd:{browser}:{worker}, a template by worker
-- KEYS[16] remuda:playwright:connections:{browser}:{worker}, a template by worker
-- KEYS[17] remuda:playwright:free:{browser}:{version}, a template by version
-- KEYS[18] remuda:bell:{topic}, rung when a place may have become free
-- KEYS[19] remuda:playwright:obstacles:{browser}
-- KEYS[20] remuda:metering:timer:{timer}, a template by connection
-- KEYS[21] remuda:metering:timers

local call = redis.call
local ACTIVE, LIFETIME, WORKERS, VERSIONS, OFFERS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local SUSPECTS, LEASES, LEAVING, VACANT, TOTALS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local WAITS, FAILURES, ORIGINS, OBSTACLES = KEYS[11], KEYS[12], KEYS[13], KEYS[19]
local own_browser = KEYS[14]:match('([%l-]+):%%s$')

-- Redis' own clock: leases and beats of many machines are compared here, and their clocks differ.
local clock = call('TIME')
local this_second = tonumber(clock[1])
local now = this_second + clock[2] / 1e6

-- How many connections a worker may have; scripts that do not know it take a worker for free, and the
-- selector, which does, looks again.
local places = math.huge

-- For how many seconds a worker that did not answer is passed over for others: each time in a row for longer, since
-- one that beats and cannot be reached costs a client the dial time-out whenever it is tried.
local function suspicion_after(failures) return 15 * 2 ^ math.min(failures - 1, 4) end
-- And after how many it is tried again although it is suspected, when there is no other worker.
local function pause_after(failures) return math.min(2 ^ (failures - 1), 8) end

local function field(worker) return own_browser .. ':' .. worker end
local function key_of(worker) return string.format(KEYS[14], worker) end
local function connections_of(worker) return string.format(KEYS[16], worker) end

local function tally(what, by)
  if by > 0 then call('HINCRBY', TOTALS, what, by) end
end

local function ring() call('PUBLISH', KEYS[18], '') end

local function is_in(zset, worker)
  local score = call('ZSCORE', zset, worker)
  return score and tonumber(score) > now
end

local function lifetime_of(worker) return tonumber(call('HGET', LIFETIME, field(worker)) or 0) end

local function endpoint_of(worker)
  local found = call('HMGET', key_of(worker), 'wsEndpoint', 'endpoint')
  return found[1] or found[2]
end

-- Whether a worker lives and takes connections. A key without a TTL proves nothing: it stays after a death, too.
local function is_open(worker)
  return call('PTTL', key_of(worker)) > 0 and call('HGET', key_of(worker), 'status') == 'available'
    and endpoint_of(worker) and not is_in(LEAVING, worker) and not is_in(SUSPECTS, worker)
end

-- Puts a worker where the selector finds it, or takes it from there; returns the index and its score there.
local function file(worker)
  local version = call('HGET', VERSIONS, worker)
  if not version then return nil end
  local index = string.format(KEYS[17], version)
  local active = tonumber(call('HGET', ACTIVE, field(worker)) or 0)
  if active < places and is_open(worker) then
    local score = string.format('%.6f', lifetime_of(worker) - active / 1e6)
    call('ZADD', index, score, worker)
    return index, tonumber(score)
  end
  call('ZREM', index, worker)
  return nil
end

local function forget(worker)
  local version = call('HGET', VERSIONS, worker)
  if version then call('ZREM', string.format(KEYS[17], version), worker) end
  call('HDEL', VERSIONS, worker)
  call('HDEL', FAILURES, worker)
  call('HDEL', OBSTACLES, worker)
  for _, zset in ipairs({WORKERS, SUSPECTS, LEAVING}) do
    call('ZREM', zset, worker)
  end
end

-- The counter follows the leases. What it shows beyond them are connections of a foreign proxy, which counts
-- up and down without leases: they stay. Less than the leases it never shows, so it is never negative.
local function recount(worker, change)
  local name = field(worker)
  local real = call('ZCARD', connections_of(worker))
  local shown = tonumber(call('HGET', ACTIVE, name) or real - change)
  if math.max(shown + change, real) == 0 and not call('ZSCORE', WORKERS, worker)
    and call('EXISTS', key_of(worker)) == 0 then
    -- It has left: the last connection takes the counters along.
    call('HDEL', ACTIVE, name)
    call('HDEL', LIFETIME, name)
  elseif shown + change < real then
    call('HSET', ACTIVE, name, real)
  else
    call('HINCRBY', ACTIVE, name, change)
  end
  file(worker)
end

-- The time of a connection is metered, in the steps that begin and end it, so that it is not lost, whatever is killed.
local function ms(moment) return string.format('%.0f', moment * 1000) end
local function timer_of(connection) return string.format(KEYS[20], connection) end

-- Long enough to know whether a connection comes about: until then it is not counted.
local DIALLED_WITHIN = 120

local function keep_timer(connection, since, origin)
  local timer = timer_of(connection)
  -- A whole second: of one that begins now, this is more exact.
  local began = now - since < 2 and now or since
  if call('HSETNX', timer, 'began', ms(began)) == 1 then
    call('HSET', timer, 'service', 'playwright', 'account', cjson.decode(origin).account or '')
    call('ZADD', KEYS[21], ms(now + DIALLED_WITHIN), connection)
  end
  call('HSET', timer, 'seen', ms(now))
end

local function end_timer(connection, ended)
  if call('EXISTS', timer_of(connection)) == 1 then
    call('HSET', timer_of(connection), 'ended', ended)
    call('ZADD', KEYS[21], ended, connection)
  end
end

local function drop_timer(connection)
  call('DEL', timer_of(connection))
  call('ZREM', KEYS[21], connection)
end

local function add(worker, connection, since, lease, origin)
  call('ZADD', LEASES, string.format('%.3f', now + lease), worker .. '/' .. connection)
  local is_new = call('ZADD', connections_of(worker), 'NX', since, connection) == 1
  keep_timer(connection, tonumber(since), origin)
  if is_new then
    call('HSET', ORIGINS, connection, origin)
    recount(worker, 1)
  end
  return is_new
end

local function remove(worker, connection)
  call('ZREM', LEASES, worker .. '/' .. connection)
  call('HDEL', ORIGINS, connection)
  if call('ZREM', connections_of(worker), connection) == 1 then
    recount(worker, -1)
    return true
  end
  return false
end

-- Ends connections whose gateway has not renewed them, a few at a time; returns how many.
local function prune(most)
  local healed = 0
  for _, lease in ipairs(call('ZRANGE', LEASES, '-inf', now, 'BYSCORE', 'LIMIT', 0, most)) do
    local worker, connection = lease:match('^(.*)/(.-)$')
    if remove(worker, connection) then healed = healed + 1 end
    -- Its gateway was killed after that; it is unknown how soon.
    end_timer(connection, call('HGET', timer_of(connection), 'seen') or ms(now))
  end
  tally('healed', healed)
  if healed > 0 then ring() end
  return healed
end

-- Workers that have left and are still waited for.
local function vacancies()
  local gone = {}
  for _, worker in ipairs(call('ZRANGE', VACANT, now, '+inf', 'BYSCORE')) do
    if not is_in(LEAVING, worker) then gone[#gone + 1] = worker end
  end
  return gone
end

-- Whether one more worker may go: those that leave and those that left without being replaced count as out.
local function may_one_go(percent)
  local leaving, gone = call('ZCOUNT', LEAVING, now, '+inf'), #vacancies()
  local all = call('ZCOUNT', WORKERS, now, '+inf') + gone
  return leaving + gone < math.max(1, math.floor(all * percent / 100))
end

-- Notes that a worker leaves, and with the first note that a new one is waited for: it may come before the old one
-- has gone.
local function begin_to_leave(worker, seconds)
  local is_first = call('ZADD', LEAVING, now + seconds, worker) == 1
  call('ZADD', VACANT, is_first and 'NX' or 'XX', now + seconds, worker)
end

-- A new worker takes the place of one that has left, else of one that leaves. Vacancies whose time is over are
-- removed.
local function fill_vacancy()
  call('ZREMRANGEBYSCORE', VACANT, '-inf', now)
  local gone = vacancies()[1]
  if gone then call('ZREM', VACANT, gone) else call('ZPOPMIN', VACANT) end
end

-- Tells a worker at its lifetime limit to shut down, if it is its turn.
local function restart_if_due(worker, limit, percent, seconds)
  if lifetime_of(worker) < limit or not is_open(worker) or not may_one_go(percent) then return false end
  local command = string.format(KEYS[15], worker)
  call('SET', command, 'shutdown', 'EX', seconds)
  call('PUBLISH', command, 'shutdown')
  begin_to_leave(worker, seconds)
  tally('restarts', 1)
  file(worker)
  return true
end
