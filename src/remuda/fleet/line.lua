-- A line's only writer, apart from the turns, which `uses.lua` changes too. Before it does what it is asked, those
-- fall out whose lease has run out; after it, whoever has come to the head by that is called.
-- KEYS[1] remuda:line:turns:{line}
-- KEYS[2] remuda:line:leases:{line}
-- KEYS[3] remuda:line:counts:{line}
-- KEYS[4] remuda:lines
-- ARGV[6] verb, one of join (which also tells whether it is the head), leave, renew and head
-- ARGV[7] line
-- ARGV[8] lease, in seconds
-- ARGV[9] arrival of the one who joins, '' when it is new
-- ARGV[10] longest that the account's part of the line may get by a new one, '' when it does not matter
-- ARGV[11..] members, each `account|ticket`: one, for renew any number, for head none
-- returns for join whether it is the head and the arrival, or nil and '' when there is no room; for leave whether
-- it was there; for renew the members that are no longer in the line; for head the ticket at the head

local turns, leases, counts, lines = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local line = ARGV[7]
local lease = tonumber(ARGV[8])
local lease_end = integer(now + lease * 1000000)

local function parts_of(member)
  return member:match('^([^|]*)|(.*)$')
end

local function order_of(account)
  return string.format(ARGV[2], account, line)
end

-- Has the books say what is true of an account, after its part of the line or what it uses may have changed.
local function file(account)
  local waiting = redis.call('ZCARD', order_of(account))
  if waiting == 0 then
    redis.call('ZREM', turns, account)
    redis.call('HDEL', counts, account)
    redis.call('ZREM', string.format(ARGV[4], account), line)
    return
  end
  redis.call('HSET', counts, account, waiting)
  local held = count_held(account)
  local turn = redis.call('ZSCORE', turns, account)
  if not turn or math.floor(turn / ONE_BROWSER) ~= held then
    set_turn(line, account, held)
  end
end

-- Takes members out, and has the books of their accounts say so; whether the last of them was there.
local function drop(members)
  local accounts, was_there = {}, 0
  for _, member in ipairs(members) do
    local account, ticket = parts_of(member)
    was_there = redis.call('ZREM', leases, member)
    redis.call('ZREM', order_of(account), ticket)
    accounts[account] = true
  end
  for account in pairs(accounts) do
    file(account)
  end
  return was_there
end

-- The head. Should Redis ever lose one of the keys, nothing without a lease may stand there for ever.
local function true_head()
  local ticket, account = head(line)
  while ticket and not redis.call('ZSCORE', leases, account .. '|' .. ticket) do
    drop({account .. '|' .. ticket})
    ticket, account = head(line)
  end
  return ticket
end

local function prolong(account)
  local waits = string.format(ARGV[4], account)
  redis.call('ZREMRANGEBYSCORE', waits, '-inf', integer(now))
  redis.call('ZADD', waits, lease_end, line)
  redis.call('EXPIRE', waits, math.ceil(lease))
  redis.call('EXPIRE', order_of(account), math.ceil(lease))
end

local function prolong_line()
  if redis.call('ZADD', lines, lease_end, line) == 1 then
    redis.call('PUBLISH', string.format(ARGV[5], 'lines'), '')
  end
  redis.call('ZREMRANGEBYSCORE', lines, '-inf', integer(now))
  for _, key in ipairs(KEYS) do
    redis.call('EXPIRE', key, math.ceil(lease))
  end
end

local verbs = {}

function verbs.join()
  local account, ticket = parts_of(ARGV[11])
  local order = order_of(account)
  local arrival = redis.call('ZSCORE', order, ticket)
  if not arrival then
    arrival = ARGV[9]
    if arrival == '' then
      if ARGV[10] ~= '' and redis.call('ZCARD', order) >= tonumber(ARGV[10]) then
        return {false, ''}
      end
      -- Later than the last, also within one microsecond: equal scores would be ordered by name.
      local last = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')[2]
      arrival = math.max(now, (tonumber(last) or 0) + 1)
    end
    arrival = integer(arrival)
    redis.call('ZADD', order, arrival, ticket)
  end
  redis.call('ZADD', leases, lease_end, ARGV[11])
  file(account)
  prolong(account)
  prolong_line()
  return {true_head() == ticket and 1 or 0, arrival}
end

function verbs.leave()
  local was_there = drop({ARGV[11]})
  if redis.call('EXISTS', turns) == 0 then
    redis.call('ZREM', lines, line)
  end
  return was_there
end

function verbs.renew()
  local lost, accounts = {}, {}
  for index = 11, #ARGV do
    local account, ticket = parts_of(ARGV[index])
    if redis.call('ZSCORE', order_of(account), ticket) then
      redis.call('ZADD', leases, lease_end, ARGV[index])
      accounts[account] = true
    else
      lost[#lost + 1] = ARGV[index]
    end
  end
  for account in pairs(accounts) do
    file(account)
    prolong(account)
  end
  if next(accounts) then
    prolong_line()
  end
  return lost
end

function verbs.head()
  return true_head()
end

local first = head(line)
drop(redis.call('ZRANGEBYSCORE', leases, '-inf', integer(now)))
local answer = verbs[ARGV[6]]()
-- Who joins hears as the answer that it is the head.
if not (ARGV[6] == 'join' and answer[1] == 1) then
  call_head(line, first)
end
return answer
