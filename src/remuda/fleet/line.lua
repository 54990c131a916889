-- A line's only writer. Before it does what it is asked, those fall out whose lease has run out; after it,
-- whoever has come to the head by that is called.
-- KEYS[1] remuda:line:order:{line}
-- KEYS[2] remuda:line:leases:{line}
-- KEYS[3] remuda:lines
-- ARGV[1] verb, one of join (which also tells the position), leave and renew
-- ARGV[2] line
-- ARGV[3] lease, in seconds
-- ARGV[4] bell, template by ticket, or by `lines` for the one that tells of a new line
-- ARGV[5] arrival of the one who joins, '' when it is new
-- ARGV[6] longest that the line may get by a new one, '' when it does not matter
-- ARGV[7..] tickets, one, or for renew any number
-- returns for join the position and the arrival, or 0 and '' when the line is full; for leave whether it was
-- there; for renew the tickets that are no longer in the line

local order, leases, lines = KEYS[1], KEYS[2], KEYS[3]
local ticket = ARGV[7]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lease = tonumber(ARGV[3])
local lease_end = string.format('%.0f', now + lease * 1000000)

local function head()
  return redis.call('ZRANGE', order, 0, 0)[1]
end

local function drop(gone)
  redis.call('ZREM', order, gone)
  return redis.call('ZREM', leases, gone)
end

local function drop_the_dead()
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', string.format('%.0f', now))) do
    drop(dead)
  end
  -- Should Redis ever lose one of the two keys, nothing may stand at the head for ever.
  while head() and not redis.call('ZSCORE', leases, head()) do
    drop(head())
  end
end

local function prolong()
  if redis.call('ZADD', lines, lease_end, ARGV[2]) == 1 then
    redis.call('PUBLISH', string.format(ARGV[4], 'lines'), '')
  end
  redis.call('ZREMRANGEBYSCORE', lines, '-inf', string.format('%.0f', now))
  for _, key in ipairs(KEYS) do
    redis.call('EXPIRE', key, math.ceil(lease))
  end
end

local verbs = {}

function verbs.join()
  local arrival = redis.call('ZSCORE', order, ticket)
  if not arrival then
    arrival = ARGV[5]
    if arrival == '' then
      if ARGV[6] ~= '' and redis.call('ZCARD', order) >= tonumber(ARGV[6]) then
        return {0, ''}
      end
      -- Later than the last, also within one microsecond: equal scores would be ordered by name.
      local last = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')[2]
      arrival = math.max(now, (tonumber(last) or 0) + 1)
    end
    arrival = string.format('%.0f', arrival)
    redis.call('ZADD', order, arrival, ticket)
  end
  redis.call('ZADD', leases, lease_end, ticket)
  prolong()
  return {redis.call('ZRANK', order, ticket) + 1, arrival}
end

function verbs.leave()
  local was_there = drop(ticket)
  if not head() then
    redis.call('ZREM', lines, ARGV[2])
  end
  return was_there
end

function verbs.renew()
  local lost = {}
  for index = 7, #ARGV do
    if redis.call('ZSCORE', order, ARGV[index]) then
      redis.call('ZADD', leases, lease_end, ARGV[index])
    else
      lost[#lost + 1] = ARGV[index]
    end
  end
  if head() then
    prolong()
  end
  return lost
end

local first = head()
drop_the_dead()
local answer = verbs[ARGV[1]]()
local called = head()
-- Who joins hears its position as the answer.
if called and called ~= first and not (ARGV[1] == 'join' and called == ticket) then
  redis.call('PUBLISH', string.format(ARGV[4], called), '')
end
return answer
