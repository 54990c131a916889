-- Clears stale workers away, and takes up those that registered without Remuda's book.
-- ARGV[1] now, the current timestamp
-- ARGV[2] threshold, seconds after which a worker is stale
-- ARGV[3] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[4] seconds for which a worker that is taken up here is believed alive
-- ARGV[5] certain, 1 if one whose key is gone is known to be dead, else empty
-- ARGV[6..] workers to look at: few at a time, since Redis does nothing else meanwhile
-- returns the number of reaped workers

places = tonumber(ARGV[3])
local threshold = tonumber(ARGV[2])

-- Milliseconds, as existing workers write them, are understood too.
local function last_beat(worker)
  local beat = tonumber(call('HGET', key_of(worker), 'lastHeartbeat') or 0) or 0
  return beat > 1e11 and beat / 1000 or beat
end

local function reap(worker)
  call('DEL', key_of(worker))
  forget(worker)
  -- Connections that go on keep their count: the last one takes it along.
  if call('ZCARD', connections_of(worker)) == 0 then
    call('HDEL', ACTIVE, field(worker))
    call('HDEL', LIFETIME, field(worker))
  end
end

local function take_up(worker)
  if call('HSETNX', VERSIONS, worker, 'any') == 1 then
    call('ZADD', OFFERS, 'GT', now + ARGV[4], 'any')
    call('HSETNX', ACTIVE, field(worker), 0)
    call('HSETNX', LIFETIME, field(worker), 0)
  end
  if call('HGET', VERSIONS, worker) == 'any' then
    call('ZADD', WORKERS, 'GT', now + ARGV[4], worker)
    call('ZADD', OFFERS, 'GT', now + ARGV[4], 'any')
  end
  file(worker)
end

-- After an absence of Redis the keys of live workers are gone, too: each has until the threshold to register again.
local function is_gone_for_good(worker)
  local believed_until = call('ZSCORE', WORKERS, worker)
  if believed_until then return now - believed_until > threshold end
  -- Since when is unknown. Of a worker that was reaped before, the last connection takes along what is left.
  if call('ZCARD', connections_of(worker)) == 0 then call('ZADD', WORKERS, now, worker) end
  return false
end

local reaped = 0
for index = 6, #ARGV do
  local worker = ARGV[index]
  if call('EXISTS', key_of(worker)) == 1 then
    if ARGV[1] - last_beat(worker) > threshold then
      reap(worker)
      reaped = reaped + 1
    else
      take_up(worker)
    end
  elseif ARGV[5] == '1' or is_gone_for_good(worker) then
    reap(worker)
    reaped = reaped + 1
  end
end
for _, zset in ipairs({OFFERS, VACANT}) do
  call('ZREMRANGEBYSCORE', zset, '-inf', now)
end
tally('reaped', reaped)
return reaped
